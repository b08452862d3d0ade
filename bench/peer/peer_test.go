package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

const nodes = `{"items": [
	{"metadata": {"name": "large"}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi"}}},
	{"metadata": {"name": "full"}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi"}}},
	{"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "8", "memory": "1Gi"}}}]}`

const running = `{"items": [
	{"metadata": {"uid": "a"}, "status": {"phase": "Running"}, "spec": {"nodeName": "full",
		"initContainers": [{"resources": {"requests": {"cpu": "7"}}}],
		"containers": [{"resources": {"requests": {"cpu": "1"}}}], "overhead": {"cpu": "500m"}}},
	{"metadata": {"uid": "b"}, "status": {"phase": "Failed"}, "spec": {"nodeName": "large",
		"containers": [{"resources": {"requests": {"cpu": "8"}}}]}}]}`

const pod = `{"metadata": {"namespace": "n", "name": "p", "uid": "new"}, "spec": {
	"containers": [{"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]}}`

// peer answers with the API server's nodes and pods behind it; bindings are counted, or refused.
func peer(t *testing.T, refuse *bool) (post func(verb, body string) map[string]any, bindings *[]string) {
	t.Helper()
	bindings = &[]string{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/nodes":
			w.Write([]byte(nodes))
		case r.URL.Path == "/api/v1/pods":
			w.Write([]byte(running))
		case *refuse:
			http.Error(w, "conflict", http.StatusConflict)
		default:
			var binding struct{ Target struct{ Name string } }
			json.NewDecoder(r.Body).Decode(&binding)
			*bindings = append(*bindings, r.Method+" "+r.URL.Path+" "+binding.Target.Name)
			w.Write([]byte(`{"kind": "Status"}`))
		}
	}))
	t.Cleanup(api.Close)
	totals, server := newTotals(), newAPIServer(api.URL, "token")
	if err := server.load(totals); err != nil {
		t.Fatal(err)
	}
	handler := routes(totals, server)
	return func(verb, body string) map[string]any {
		t.Helper()
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest("POST", "/extender/"+verb, strings.NewReader(body)))
		if recorder.Code != 200 {
			t.Fatalf("%s: %d %s", verb, recorder.Code, recorder.Body)
		}
		text := recorder.Body.Bytes()
		if bytes.HasPrefix(text, []byte("[")) {
			text = append(append([]byte(`{"list":`), text...), '}')
		}
		var answer map[string]any
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}, bindings
}

func same(t *testing.T, got, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Fatalf("got %v, wanted %v", got, wanted)
	}
}

const names = `"NodeNames": ["large", "full", "small", "other"]`

func TestFilterNamesWhatHasNoRoom(t *testing.T) {
	post, _ := peer(t, new(bool))

	answer := post("filter", `{"Pod": `+pod+`, `+names+`}`)

	same(t, answer["NodeNames"], []any{"large"})
	same(t, answer["FailedNodes"], map[string]any{
		"full": "Insufficient cpu", "small": "Insufficient memory", "other": "Unknown node"})
}

func TestFilterOfWholeNodesAnswersWholeNodes(t *testing.T) {
	post, _ := peer(t, new(bool))

	answer := post("filter", `{"Pod": `+pod+`, "Nodes": `+nodes+`}`)

	kept := answer["Nodes"].(map[string]any)["items"].([]any)
	same(t, len(kept), 1)
	same(t, kept[0].(map[string]any)["metadata"].(map[string]any)["name"], "large")
}

func TestPrioritizePrefersTheEmptierNode(t *testing.T) {
	post, _ := peer(t, new(bool))

	answer := post("prioritize", `{"Pod": `+pod+`, `+names+`}`)

	same(t, answer["list"].([]any)[0], map[string]any{"Host": "large", "Score": 8.0})
	same(t, answer["list"].([]any)[1], map[string]any{"Host": "full", "Score": 0.0})
}

const bindArgs = `{"PodNamespace": "n", "PodName": "p", "PodUID": "new", "Node": "large"}`

func TestBindSendsABindingAndTakesTheRoom(t *testing.T) {
	post, bindings := peer(t, new(bool))
	post("filter", `{"Pod": `+pod+`, `+names+`}`)

	answer := post("bind", bindArgs)

	same(t, answer["Error"], "")
	same(t, *bindings, []string{"POST /api/v1/namespaces/n/pods/p/binding large"})
	same(t, post("prioritize", `{"Pod": `+pod+`, `+names+`}`)["list"].([]any)[0],
		map[string]any{"Host": "large", "Score": 7.0})
}

func TestBindThatIsRefusedGivesTheRoomBack(t *testing.T) {
	refuse := true
	post, _ := peer(t, &refuse)
	post("filter", `{"Pod": `+pod+`, `+names+`}`)

	first := post("bind", bindArgs)
	refuse = false
	second := post("bind", bindArgs)

	same(t, strings.Contains(first["Error"].(string), "409"), true)
	same(t, second["Error"], "")
}

func TestBindOfAPodThatWasNotFilteredIsRefused(t *testing.T) {
	post, bindings := peer(t, new(bool))

	same(t, post("bind", bindArgs)["Error"], "pod n/p was not filtered")
	same(t, *bindings, []string{})
}
