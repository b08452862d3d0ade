// What Kubernetes itself makes of quantities and pods: reads JSON lines, adds its answers.
//
// Not run by any test; it made ../quantities.jsonl and ../pods.jsonl (see ../README.md).
package main

import (
	"bufio"
	"encoding/json"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

type line struct {
	Text  *string         `json:"text,omitempty"`
	Pod   json.RawMessage `json:"pod,omitempty"`
	Read  bool            `json:"read"`
	Cpu   int64           `json:"cpuMilli"`
	Mem   int64           `json:"memoryBytes"`
	Bytes string          `json:"bytes,omitempty"`
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			panic(err)
		}
		if l.Text != nil {
			quantity(&l)
		} else {
			pod(&l)
		}
		if err := out.Encode(l); err != nil {
			panic(err)
		}
	}
}

func quantity(l *line) {
	q, err := resource.ParseQuantity(*l.Text)
	l.Read = err == nil
	if l.Read {
		l.Cpu, l.Mem = q.MilliValue(), q.Value()
		l.Bytes = resource.NewQuantity(l.Mem, resource.BinarySI).String()
	}
}

func pod(l *line) {
	var p v1.Pod
	if err := json.Unmarshal(l.Pod, &p); err != nil {
		panic(err)
	}
	requests := helpers.PodRequests(&p, helpers.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	l.Read, l.Cpu, l.Mem = true, requests.Cpu().MilliValue(), requests.Memory().Value()
}
