module oracle

go 1.26.0

require (
	k8s.io/api v0.36.2
	k8s.io/apimachinery v0.36.2
	k8s.io/component-helpers v0.36.2
)
