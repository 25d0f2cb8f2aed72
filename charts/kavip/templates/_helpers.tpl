{{- define "kavip.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "kavip.selectorLabels" -}}
app.kubernetes.io/name: kavip
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kavip.labels" -}}
{{ include "kavip.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What every webhook has in common; a dict of root, name, path and failurePolicy. No caBundle: kavip writes it. */}}
{{- define "kavip.webhook" -}}
name: {{ .name }}.kavip.io
clientConfig:
  service:
    namespace: {{ .root.Release.Namespace }}
    name: kavip-webhook
    path: {{ .path }}
    port: 443
failurePolicy: {{ .failurePolicy }}
matchPolicy: Equivalent
sideEffects: None
admissionReviewVersions: [v1]
{{- end }}

{{- /* The namespaces that must work without kavip. */}}
{{- define "kavip.elsewhere" -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{ list "kube-system" .Release.Namespace | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* CEL: .object carries a kavip annotation, or a class of which .classed holds. */}}
{{- define "kavip.marked" -}}
({{ .object }} != null && ((has({{ .object }}.metadata.annotations) && {{ .object }}.metadata.annotations.exists(key,
key.startsWith('kavip.io/') || key.startsWith('keepalived-operator.redhat-cop.io/')))
|| (has({{ .object }}.spec.loadBalancerClass) && {{ .object }}.spec.loadBalancerClass{{ .classed }})))
{{- end }}

{{- /* CEL: object and oldObject differ in the field given, which both may lack. */}}
{{- define "kavip.differs" -}}
has(object.{{ . }}) != has(oldObject.{{ . }}) || (has(object.{{ . }}) && object.{{ . }} != oldObject.{{ . }})
{{- end }}

{{- /* CEL: .object carries a kavip annotation that .other lacks, or has with another value. */}}
{{- define "kavip.otherAnnotation" -}}
(has({{ .object }}.metadata.annotations) && {{ .object }}.metadata.annotations.exists(key,
(key.startsWith('kavip.io/') || key.startsWith('keepalived-operator.redhat-cop.io/'))
&& (!has({{ .other }}.metadata.annotations) || !(key in {{ .other }}.metadata.annotations)
|| {{ .other }}.metadata.annotations[key] != {{ .object }}.metadata.annotations[key])))
{{- end }}

{{- /* CEL, of the validators: removing a finalizer from an object in deletion needs no review. */}}
{{- define "kavip.notOnlyEndingDeletion" -}}
object == null ? !has(oldObject.metadata.deletionTimestamp) :
(oldObject == null || !has(object.metadata.deletionTimestamp)
|| {{ include "kavip.differs" "spec" }}
|| {{ include "kavip.differs" "metadata.labels" }}
|| (({{ include "kavip.differs" "metadata.annotations" }})
&& ({{ include "kavip.otherAnnotation" (dict "object" "object" "other" "oldObject") }}
|| {{ include "kavip.otherAnnotation" (dict "object" "oldObject" "other" "object") }})))
{{- end }}

{{- /* Annotations with which cert-manager or OpenShift writes caBundle. */}}
{{- define "kavip.trust" -}}
{{- if eq .Values.certs.mode "cert-manager" -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/kavip-webhook
{{- else if eq .Values.certs.mode "service-ca" -}}
service.beta.openshift.io/inject-cabundle: "true"
{{- end -}}
{{- end }}

{{- /* Where kavip's own pods run, and as whom. OpenShift gives each namespace user ids of its own. */}}
{{- define "kavip.placement" -}}
securityContext:
  runAsNonRoot: true
  {{- if ne (include "kavip.openshift" .) "true" }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kavip.harmless" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- /* Whether pods are judged by SecurityContextConstraints. */}}
{{- define "kavip.openshift" -}}
{{- if kindIs "bool" .Values.openshift.enabled }}{{ .Values.openshift.enabled }}
{{- else }}{{ .Capabilities.APIVersions.Has "security.openshift.io/v1/SecurityContextConstraints" }}
{{- end }}
{{- end }}

{{- /* Fail where the cluster does not serve a kind; a dict of root, kind, value, and remedy. A render without a cluster knows none:
every API server has apiregistration.k8s.io, helm's own list has not. */}}
{{- define "kavip.needs" -}}
{{- $served := .root.Capabilities.APIVersions }}
{{- if and ($served.Has "apiregistration.k8s.io/v1") (not ($served.Has .kind)) }}
{{- fail (printf "%s needs %s, which this cluster does not serve: %s" .value .kind .remedy) }}
{{- end }}
{{- end }}

{{- /* Labels and annotations of what only `helm test` makes; a dict of root and weight. */}}
{{- define "kavip.test" -}}
labels:
  {{- omit (include "kavip.labels" .root | fromYaml) "app.kubernetes.io/name" | toYaml | nindent 2 }}
  app.kubernetes.io/name: kavip-test
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
