{{- define "kavip.image" -}}
{{- $name := .Values.image.repository }}
{{- with .Values.image.registry }}
{{- $name = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $name "") }}
{{- end }}
{{- with .Values.image.digest }}
{{- printf "%s@%s" $name . }}
{{- else }}
{{- printf "%s:%s" $name (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* Every image that a pod may run, as a list: kavip's own, and those of policies.images. Without policies.images a
group may name any image. */}}
{{- define "kavip.relatedImages" -}}
{{- append .Values.policies.images (include "kavip.image" .) | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* The names of the pull secrets, comma-separated. */}}
{{- define "kavip.pullSecrets" -}}
{{- range $index, $each := .Values.imagePullSecrets }}{{ if $index }},{{ end }}{{ $each.name }}{{ end }}
{{- end }}

{{- define "kavip.selectorLabels" -}}
app.kubernetes.io/name: kavip
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* Labels of every pod of kavip, whatever the topology. */}}
{{- define "kavip.podSelector" -}}
app.kubernetes.io/part-of: kavip
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* What runs, as a list: the name of Deployment and account, the command, the accounts of files/rights.yaml whose
rules it holds, and the selector of its pods. The selector of the Service kavip-webhook, `selectorLabels`, matches the
pods that answer reviews, in both topologies and in release 0.1.0, so that all of them answer during an upgrade. That is
why the pods of the controller have another name. */}}
{{- define "kavip.components" -}}
{{- /* after an upgrade from 0.1.0 with --reuse-values the value is missing, which means split */}}
{{- if eq .Values.topology "combined" -}}
- name: kavip
  command: run
  accounts: [webhook, controller]
  selector:
    {{- include "kavip.selectorLabels" . | nindent 4 }}
{{- else -}}
- name: kavip-webhook
  command: webhook
  accounts: [webhook]
  selector:
    {{- include "kavip.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/component: webhook
- name: kavip-controller
  command: controller
  accounts: [controller]
  selector:
    app.kubernetes.io/name: kavip-controller
    app.kubernetes.io/instance: {{ .Release.Name | quote }}
    app.kubernetes.io/component: controller
{{- end }}
{{- end }}

{{- /* The chart value at a path such as certs.mode; a dict of root and path. */}}
{{- define "kavip.value" -}}
{{- $value := .root.Values }}
{{- range splitList "." .path }}{{ $value = get $value . }}{{ end }}
{{- $value }}
{{- end }}

{{- /* The names at a path of the values, as a list: a text, or the names of the entries of a list; a dict of root and path. */}}
{{- define "kavip.names" -}}
{{- $value := .root.Values }}
{{- range splitList "." .path }}{{ $value = get $value . }}{{ end }}
{{- $names := list }}
{{- if kindIs "slice" $value }}
{{- range $value }}{{ $names = append $names .name }}{{ end }}
{{- else if $value }}
{{- $names = list $value }}
{{- end }}
{{- $names | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* The groups of the values with their namespaces, as JSON; `default` becomes the label, `preset` fields of spec. */}}
{{- define "kavip.groups" -}}
{{- $presets := .Files.Get "files/presets.yaml" | fromYaml }}
{{- $groups := list }}
{{- range .Values.groups }}
{{- $labels := .labels | default dict }}
{{- if .default }}{{ $labels = merge (dict "kavip.io/default-group" "true") $labels }}{{ end }}
{{- $spec := deepCopy (.spec | default dict) }}
{{- range $field, $value := get $presets (.preset | default "") | default dict }}
{{- if not (hasKey $spec $field) }}{{ $_ := set $spec $field $value }}{{ end }}
{{- end }}
{{- $group := dict "namespace" (.namespace | default $.Release.Namespace) "labels" $labels "spec" $spec }}
{{- $groups = append $groups (merge $group (omit . "default" "preset")) }}
{{- end }}
{{- $groups | toJson }}
{{- end }}

{{- /* A ClusterRole, or with a namespace a Role, and its binding; a dict of root, name, account, rules and namespace. */}}
{{- define "kavip.role" -}}
{{- $kind := empty .namespace | ternary "ClusterRole" "Role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "kavip.labels" .root | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "kavip.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
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

{{- /* Fail for values that each suit the schema, but not each other. */}}
{{- define "kavip.checkValues" -}}
{{- $used := dict }}
{{- $paths := list "webhook.port" "metrics.port" "probes.port" }}
{{- if .Values.webhook.hostNetwork }}{{ $paths = append $paths "agent.port" }}{{ end }}
{{- range $path := $paths }}
{{- $port := include "kavip.value" (dict "root" $ "path" $path) | trim }}
{{- with get $used $port }}
{{- fail (printf "%s and %s are both %s: want different ports" . $path $port) }}
{{- end }}
{{- $_ := set $used $port $path }}
{{- end }}
{{- if and (has "kube-system" .Values.groupNamespaces) (eq (include "kavip.policies" . | trim) "true") }}
{{- fail "groupNamespaces: kube-system: kavip writes nothing there (policies.enabled), so groups there are not served: remove it from the list" }}
{{- end }}
{{- end }}

{{- /* The groups of the values as a list of namespace/name. */}}
{{- define "kavip.groupKeys" -}}
{{- $keys := list }}
{{- range include "kavip.groups" . | fromJsonArray }}{{ $keys = append $keys (printf "%s/%s" .namespace .name) }}{{ end }}
{{- $keys | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* Fail for groups that kavip could not serve; a dict of root and groups. */}}
{{- define "kavip.checkGroups" -}}
{{- range $index, $group := .groups }}
{{- if and $.root.Values.groupNamespaces (not (has $group.namespace $.root.Values.groupNamespaces)) }}
{{- fail (printf "groups[%d].namespace: %s: want one of groupNamespaces (%s)" $index $group.namespace (join ", " $.root.Values.groupNamespaces)) }}
{{- end }}
{{- if and (eq $group.namespace "kube-system") (eq (include "kavip.policies" $.root | trim) "true") }}
{{- fail (printf "groups[%d].namespace: kube-system: kavip writes nothing there: choose another namespace" $index) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether admission policies bind kavip's accounts; a render without a cluster takes them as served. */}}
{{- define "kavip.policies" -}}
{{- $kind := "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" }}
{{- $enabled := .Values.policies.enabled }}
{{- if kindIs "bool" $enabled }}
{{- if $enabled }}
{{- include "kavip.needs" (dict "root" . "kind" $kind "value" "policies.enabled" "remedy" "it is part of Kubernetes 1.30; set auto or false") }}
{{- end }}
{{- $enabled }}
{{- else }}
{{- $served := .Capabilities.APIVersions }}
{{- or ($served.Has $kind) (not ($served.Has "apiregistration.k8s.io/v1")) }}
{{- end }}
{{- end }}

{{- /* CEL: whether pods in the namespace of the request may come from a patch; "" if patches are permitted nowhere. */}}
{{- define "kavip.patched" -}}
{{- if or .Values.keepalivedTemplateFromConfigMap (has "*" .Values.templates.namespaces) -}}
true
{{- else if .Values.templates.namespaces -}}
request.namespace in {{ .Values.templates.namespaces | uniq | sortAlpha | toJson }}
{{- end -}}
{{- end }}

{{- /* The user name of the account that runs .component, webhook or controller; with one Deployment both are kavip. */}}
{{- define "kavip.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:kavip{{ if ne .root.Values.topology "combined" }}-{{ .component }}{{ end }}
{{- end }}

{{- /* CEL: the user names of kavip's accounts. */}}
{{- define "kavip.users" -}}
{{- list (include "kavip.user" (dict "root" . "component" "controller")) (include "kavip.user" (dict "root" . "component" "webhook")) | uniq | toJson }}
{{- end }}

{{- /* The beginning of an admission policy that binds kavip's accounts; a dict of root and name. */}}
{{- define "kavip.policy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- include "kavip.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
{{- end }}

{{- /* The match condition of an admission policy: other users cost nothing. */}}
{{- define "kavip.byKavip" -}}
- name: kavip
  expression: request.userInfo.username in {{ include "kavip.users" . }}
{{- end }}

{{- /* matchConstraints and matchConditions of a policy for the objects of groups; a dict of root, operations, and optionally a label that the objects have. */}}
{{- define "kavip.ownedKinds" -}}
matchConstraints:
  resourceRules:
  {{- range $group, $resources := dict "apps" "daemonsets" "" "configmaps" "rbac.authorization.k8s.io" "roles, rolebindings" "monitoring.coreos.com" "podmonitors" }}
    - apiGroups: [{{ $group | quote }}]
      apiVersions: [v1]
      resources: [{{ $resources }}]
      operations: {{ $.operations | toJson }}
  {{- end }}
  {{- with .label }}
  objectSelector:
    matchExpressions:
      - key: {{ . }}
        operator: Exists
  {{- end }}
matchConditions:
  {{- include "kavip.byKavip" .root | nindent 2 }}
  - name: not-the-trust-bundle
    expression: >-
      !({{ include "kavip.isTrustBundle" .root | nindent 6 | trim }})
  - name: not-the-values
    expression: >-
      !({{ include "kavip.isValues" .root | nindent 6 | trim }})
{{- end }}

{{- /* CEL: .fields of .new and .old are equal, or absent from both; a dict with these three. */}}
{{- define "kavip.same" -}}
{{- $new := .new }}
{{- $old := .old }}
{{- range $index, $field := .fields }}{{ if $index }}
&& {{ end }}{{ $new }}.?{{ $field }} == {{ $old }}.?{{ $field }}{{ end }}
{{- end }}

{{- /* CEL: the only owner of .object is the KeepalivedGroup of its name. */}}
{{- define "kavip.groupOwns" -}}
size({{ .object }}.metadata.?ownerReferences.orValue([])) == 1
&& {{ .object }}.metadata.ownerReferences.all(owner,
owner.?controller.orValue(false) && owner.kind == 'KeepalivedGroup'
&& owner.apiVersion.startsWith('redhatcop.redhat.io/') && owner.name + variables.suffix == {{ .object }}.metadata.name)
{{- end }}

{{- /* CEL: object has the finalizers of oldObject, and a new one has none. */}}
{{- define "kavip.keptFinalizers" -}}
object.metadata.?finalizers.orValue([]) == (oldObject == null ? [] : oldObject.metadata.?finalizers.orValue([]))
{{- end }}

{{- /* CEL: each key of .new's .field, a map, is one of .keys, or has the value that it has in one of .olds, a list; .path leads there. */}}
{{- define "kavip.ownKeys" -}}
{{- $old := printf "old%s" (.path | default "") -}}
{{ .new }}.?{{ .field }}.orValue({}).all(key, key in {{ .keys | toJson }} || {{ .olds }}.exists(old,
key in {{ $old }}.?{{ .field }}.orValue({}) && {{ $old }}.{{ .field }}[key] == {{ .new }}.{{ .field }}[key]))
{{- end }}

{{- /* CEL: the request writes the trust bundle of the webhook, as the account of the webhook. */}}
{{- define "kavip.isTrustBundle" -}}
request.resource.resource == 'configmaps' && request.namespace == {{ .Release.Namespace | toJson }}
&& request.name == 'kavip-webhook-ca'
&& request.userInfo.username == {{ include "kavip.user" (dict "root" . "component" "webhook") | toJson }}
{{- end }}

{{- /* CEL: the request writes the ConfigMap with the pools and groups of the values, as the account of the controller. */}}
{{- define "kavip.isValues" -}}
request.resource.resource == 'configmaps' && request.namespace == {{ .Release.Namespace | toJson }}
&& request.name == 'kavip-values'
&& request.userInfo.username == {{ include "kavip.user" (dict "root" . "component" "controller") | toJson }}
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
