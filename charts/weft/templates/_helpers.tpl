{{- define "weft.name" -}}
{{- printf "%s-weft" .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: service
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "weft.selector" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: service
{{- end -}}

{{- define "weft.account" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "weft.name" .) "default") -}}
{{- end -}}

{{/* The name of a model's objects, from a dict: root and name. A Service's must fit into 63 letters. */}}
{{- define "weft.model" -}}
{{- printf "%s-%s" (include "weft.name" .root | trunc 30 | trimSuffix "-") .name -}}
{{- end -}}

{{- define "weft.image" -}}
{{- printf "%s:%s" .Values.image.repository .Values.image.tag | quote -}}
{{- end -}}

{{- define "weft.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "weft.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}
