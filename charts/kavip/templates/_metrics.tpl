{{- /* Where the certificate of metrics.certSecret is mounted; empty: each replica signs its own. */}}
{{- define "kavip.metricsCertPath" -}}
{{- if and .Values.metrics.secure .Values.metrics.certSecret }}/etc/kavip/metrics-cert{{ end }}
{{- end }}

{{- /* How Prometheus scrapes a secured port: TLS, and the token of metrics.tokenSecret. */}}
{{- define "kavip.metricsEndpoint" -}}
scheme: https
{{- with (.Values.metrics.tokenSecret).name }}
authorization:
  credentials:
    name: {{ . | quote }}
    key: {{ $.Values.metrics.tokenSecret.key | quote }}
{{- end }}
tlsConfig:
  {{- with .Values.metrics.certSecret }}
  ca:
    secret:
      name: {{ . | quote }}
      key: ca.crt
  serverName: kavip-metrics.{{ $.Release.Namespace }}.svc
  {{- else }}
  insecureSkipVerify: true  # each replica signs its own certificate
  {{- end }}
{{- end }}
