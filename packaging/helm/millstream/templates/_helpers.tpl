{{- define "millstream.name" -}}
{{- if eq .Release.Name .Chart.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 48 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "millstream.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "millstream.labels" -}}
{{ include "millstream.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The ports of TCP: name, number, protocol of the application. */ -}}
{{- define "millstream.tcp" -}}
ports:
  - { name: http, port: 5080 }
  - { name: https, port: 5443 }
  - { name: rtmp, port: 1935 }
  - { name: rtmps, port: 8443 }
  - { name: rtsp, port: 5554 }
  - { name: rtsps, port: 5555 }
  - { name: webrtc-tcp, port: 50000 }
{{- end }}

{{- define "millstream.udp" -}}
ports:
  - { name: srt, port: 4200 }
  - { name: webrtc-udp, port: 50000 }
{{- end }}
