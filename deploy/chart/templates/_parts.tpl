{{- define "dayfly.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* A Deployment of deploy/ with the values of its part. */}}
{{- define "dayfly.deployment" -}}
{{- $values := .values }}
{{- $deployment := .object }}
{{- $_ := set $deployment.spec "replicas" $values.replicas }}
{{- $template := $deployment.spec.template }}
{{- with $values.podAnnotations }}{{ $_ := set $template.metadata "annotations" . }}{{ end }}
{{- $pod := $template.spec }}
{{- with $values.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end }}
{{- with $values.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end }}
{{- $_ := set $pod "volumes" (concat $pod.volumes $values.volumes) }}
{{- $secrets := list }}
{{- range .root.Values.image.pullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- with $secrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- $container := first $pod.containers }}
{{- $_ := set $container "image" (include "dayfly.image" .root) }}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy }}
{{- $_ := set $container "args" (concat $container.args $values.args) }}
{{- $env := list }}
{{- range $variable := default list $container.env }}
{{- if not (hasKey $values.env $variable.name) }}{{ $env = append $env $variable }}{{ end }}
{{- end }}
{{- range $name, $value := $values.env }}{{ $env = append $env (dict "name" $name "value" (toString $value)) }}{{ end }}
{{- with $env }}{{ $_ := set $container "env" . }}{{ end }}
{{- with $values.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $values.volumeMounts) }}
{{- toYaml $deployment }}
{{- end }}
