module dayfly.dev/testcluster/istio

go 1.21

require istio.io/api v1.31.4
