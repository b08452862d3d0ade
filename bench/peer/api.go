package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extender "k8s.io/kube-scheduler/extender/v1"
)

// The API server, asked with a plain HTTP client.
type apiServer struct {
	url, token string
	client     *http.Client
}

func newAPIServer(url, token string) *apiServer {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // it is on loopback
	return &apiServer{url, token, &http.Client{Transport: transport}}
}

func (a *apiServer) load(totals *totals) error {
	var nodes corev1.NodeList
	if err := a.do("GET", "/api/v1/nodes", nil, &nodes); err != nil {
		return err
	}
	for _, each := range nodes.Items {
		totals.nodes[each.Name] = &node{capacity: amountOf(each.Status.Allocatable)}
	}
	var pods corev1.PodList
	if err := a.do("GET", "/api/v1/pods", nil, &pods); err != nil {
		return err
	}
	for at := range pods.Items {
		totals.add(&pods.Items[at])
	}
	return nil
}

func (a *apiServer) bind(args *extender.ExtenderBindingArgs) error {
	binding := corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: args.Node},
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/binding", args.PodNamespace, args.PodName)
	return a.do("POST", path, binding, &struct{}{})
}

func (a *apiServer) do(method, path string, given, wanted any) error {
	text, _ := json.Marshal(given)
	request, err := http.NewRequest(method, a.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body) // to its end, or the connection could not be used again
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, body)
	}
	return json.Unmarshal(body, wanted)
}
