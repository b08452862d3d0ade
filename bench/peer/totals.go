package main

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extender "k8s.io/kube-scheduler/extender/v1"
)

type amount struct{ cpu, mem int64 }

type node struct{ capacity, used amount }

// Totals of each node, and what each pod needs that has been filtered and not bound.
type totals struct {
	mutex   sync.Mutex
	nodes   map[string]*node
	pending map[types.UID]amount
}

func newTotals() *totals {
	return &totals{nodes: map[string]*node{}, pending: map[types.UID]amount{}}
}

// add counts a pod that runs; nobody else may know the totals yet.
func (t *totals) add(pod *corev1.Pod) {
	node := t.nodes[pod.Spec.NodeName]
	if node != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		node.take(needs(pod), 1)
	}
}

func (n *node) take(pod amount, times int64) {
	n.used.cpu += times * pod.cpu
	n.used.mem += times * pod.mem
}

func (t *totals) filter(args *extender.ExtenderArgs) *extender.ExtenderFilterResult {
	pod := needs(args.Pod)
	result := &extender.ExtenderFilterResult{FailedNodes: extender.FailedNodesMap{}}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.pending[args.Pod.UID] = pod
	fits := func(name string) bool {
		reason := t.whyNot(name, pod)
		if reason != "" {
			result.FailedNodes[name] = reason
		}
		return reason == ""
	}
	if args.Nodes != nil {
		result.Nodes = &corev1.NodeList{Items: make([]corev1.Node, 0, len(args.Nodes.Items))}
		for _, each := range args.Nodes.Items {
			if fits(each.Name) {
				result.Nodes.Items = append(result.Nodes.Items, each)
			}
		}
		return result
	}
	passed := make([]string, 0, len(*args.NodeNames))
	for _, name := range *args.NodeNames {
		if fits(name) {
			passed = append(passed, name)
		}
	}
	result.NodeNames = &passed
	return result
}

func (t *totals) whyNot(name string, pod amount) string {
	node := t.nodes[name]
	switch {
	case node == nil:
		return "Unknown node"
	case node.used.cpu+pod.cpu > node.capacity.cpu:
		return "Insufficient cpu"
	case node.used.mem+pod.mem > node.capacity.mem:
		return "Insufficient memory"
	}
	return ""
}

// prioritize spreads: the emptier a node is with the pod on it, the higher its score.
func (t *totals) prioritize(args *extender.ExtenderArgs) extender.HostPriorityList {
	pod := needs(args.Pod)
	var scores extender.HostPriorityList
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if args.Nodes != nil {
		for _, each := range args.Nodes.Items {
			scores = append(scores, t.score(each.Name, pod))
		}
		return scores
	}
	for _, name := range *args.NodeNames {
		scores = append(scores, t.score(name, pod))
	}
	return scores
}

func (t *totals) score(name string, pod amount) extender.HostPriority {
	if t.whyNot(name, pod) != "" {
		return extender.HostPriority{Host: name}
	}
	node := t.nodes[name]
	cpu := (node.capacity.cpu - node.used.cpu - pod.cpu) * extender.MaxExtenderPriority / node.capacity.cpu
	mem := (node.capacity.mem - node.used.mem - pod.mem) * extender.MaxExtenderPriority / node.capacity.mem
	return extender.HostPriority{Host: name, Score: min(cpu, mem)}
}

// bind takes the room first, and gives it back where the Binding fails.
func (t *totals) bind(args *extender.ExtenderBindingArgs, send func(*extender.ExtenderBindingArgs) error) error {
	pod, err := t.reserve(args)
	if err != nil {
		return err
	}
	if err = send(args); err != nil {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		t.pending[args.PodUID] = pod
		t.nodes[args.Node].take(pod, -1)
	}
	return err
}

func (t *totals) reserve(args *extender.ExtenderBindingArgs) (amount, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	pod, known := t.pending[args.PodUID]
	if !known {
		return pod, fmt.Errorf("pod %s/%s was not filtered", args.PodNamespace, args.PodName)
	}
	if reason := t.whyNot(args.Node, pod); reason != "" {
		return pod, fmt.Errorf("node %s: %s", args.Node, reason)
	}
	delete(t.pending, args.PodUID)
	t.nodes[args.Node].take(pod, 1)
	return pod, nil
}

// needs is the larger of all main containers together and of each init container, and the overhead.
func needs(pod *corev1.Pod) amount {
	var sum amount
	for _, container := range pod.Spec.Containers {
		each := amountOf(container.Resources.Requests)
		sum.cpu, sum.mem = sum.cpu+each.cpu, sum.mem+each.mem
	}
	for _, container := range pod.Spec.InitContainers {
		each := amountOf(container.Resources.Requests)
		sum.cpu, sum.mem = max(sum.cpu, each.cpu), max(sum.mem, each.mem)
	}
	overhead := amountOf(pod.Spec.Overhead)
	return amount{sum.cpu + overhead.cpu, sum.mem + overhead.mem}
}

func amountOf(list corev1.ResourceList) amount {
	return amount{list.Cpu().MilliValue(), list.Memory().Value()}
}
