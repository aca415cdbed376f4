{{/* The objects of one training run, from a dict: root, run, name, labels, pods, and jobLabels where the Job
   itself is in a queue. */}}
{{- define "weft.runService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  labels: {{ toJson .labels }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    batch.kubernetes.io/job-name: {{ .name }}
  ports:
    - {name: door, port: 29499, protocol: TCP}
{{- end -}}

{{- define "weft.runJob" -}}
# What `weft run --engine kubernetes` makes of the same settings.
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  labels:
    {{- range $key, $value := .jobLabels | default .labels }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
spec:
  completionMode: Indexed
  completions: {{ .pods }}
  parallelism: {{ .pods }}
  backoffLimit: 0
  template:
    metadata:
      {{- $checks := kindIs "slice" .run.autopilotHealthChecks | ternary .run.autopilotHealthChecks list }}
      {{- $labels := dict }}
      {{- range $key, $value := .labels }}
      {{- $_ := set $labels $key $value }}
      {{- end }}
      {{- range $checks }}
      {{- $_ := set $labels "autopilot" "" }}
      {{- $_ := set $labels . "" }}
      {{- end }}
      labels: {{ toJson $labels }}
      {{- if .run.multiNicNetworkName }}
      annotations:
        k8s.v1.cni.cncf.io/networks: {{ .run.multiNicNetworkName | quote }}
      {{- end }}
    spec:
      restartPolicy: Never
      subdomain: {{ .name }}
      terminationGracePeriodSeconds: {{ int (.run.terminationGracePeriodSeconds | default 30) }}
      {{- if .run.serviceAccountName }}
      serviceAccountName: {{ .run.serviceAccountName | quote }}
      {{- else }}
      automountServiceAccountToken: false
      {{- end }}
      enableServiceLinks: false
      {{- if .run.schedulerName }}
      schedulerName: {{ .run.schedulerName | quote }}
      {{- end }}
      {{- if .run.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- if or .run.hostIgnoreList .run.autopilotHealthChecks .run.hostNetwork }}
      affinity:
        {{- if or .run.hostIgnoreList .run.autopilotHealthChecks }}
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  {{- if .run.hostIgnoreList }}
                  - {key: kubernetes.io/hostname, operator: NotIn, values: {{ toJson .run.hostIgnoreList }}}
                  {{- end }}
                  {{- if .run.autopilotHealthChecks }}
                  - {key: autopilot.ibm.com/gpuhealth, operator: NotIn, values: [ERR, TESTING, EVICT]}
                  {{- end }}
        {{- end }}
        {{- if .run.hostNetwork }}
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - labelSelector:
                matchLabels: {{ toJson .labels }}
              topologyKey: kubernetes.io/hostname
        {{- end }}
      {{- end }}
      {{- if or .root.Values.imagePullSecrets .run.imagePullSecrets }}
      imagePullSecrets:
        {{- range .root.Values.imagePullSecrets }}
        - name: {{ . | quote }}
        {{- end }}
        {{- range .run.imagePullSecrets }}
        - name: {{ .name | quote }}
        {{- end }}
      {{- end }}
      tolerations:
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        {{- if .run.mountNVMe }}
        fsGroup: 1000
        {{- end }}
        seccompProfile: {type: RuntimeDefault}
      {{- if .run.initContainers }}
      initContainers:
        {{- range .run.initContainers }}
        - name: {{ .name | quote }}
          image: {{ .image | quote }}
          command: {{ toJson .command }}
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: ["ALL"]
        {{- end }}
      {{- end }}
      containers:
        - name: worker
          image: {{ .run.containerImage | quote }}
          workingDir: /workspace
          {{- $start := printf "weft run --engine pods --run-dir /tmp/weft-run --skip-checks --per-host %d %s" (int (.run.workersPerPod | default (.run.numGpusPerPod | default 1))) .run.mainProgram }}
          {{- if .run.setupCommands }}
          command: ["sh", "-ec", {{ printf "%s\nexec %s" (join "\n" .run.setupCommands) $start | replace "$" "$$" | toJson }}]
          {{- else }}
          command: ["sh", "-ec", {{ printf "exec %s" $start | replace "$" "$$" | toJson }}]
          {{- end }}
          {{- if .run.ncclGdrEnvConfigMap }}
          envFrom:
            - configMapRef: {name: {{ .run.ncclGdrEnvConfigMap | quote }}}
          {{- end }}
          env:
            - {name: WEFT_PODS, value: {{ .pods | quote }}}
            - {name: WEFT_POD_PREFIX, value: {{ .name | quote }}}
            - {name: WEFT_POD_LEADER, value: {{ printf "%s-0.%s" .name .name | quote }}}
            - {name: WEFT_POD_PORT, value: "29499"}
            {{- range .run.environmentVariables }}
            - name: {{ .name }}
              {{- if .secret }}
              valueFrom:
                secretKeyRef: {name: {{ .secret.name | quote }}, key: {{ .secret.key | quote }}}
              {{- else }}
              value: {{ kindIs "string" .value | ternary .value (toJson .value) | quote }}
              {{- end }}
            {{- end }}
            {{- with .run.sshGitCloneConfig }}
            - name: GIT_SSH_COMMAND
              value: {{ .sshCmd | default "ssh -i /tmp/.ssh/keys/id_rsa -o UserKnownHostsFile=/tmp/.ssh/hosts/known_hosts" | quote }}
            {{- end }}
            {{- with .run.mountNVMe }}
            - {name: MOUNT_PATH_NVME, value: {{ .mountPath | default "/workspace/scratch-nvme" | quote }}}
            {{- end }}
            {{- if .run.topologyFileConfigMap }}
            - {name: NCCL_TOPO_FILE, value: /var/run/nvidia-topologyd/virtualTopology.xml}
            {{- end }}
            - name: WEFT_POD_INDEX
              valueFrom:
                fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
            - name: WEFT_POD_IP
              valueFrom:
                fieldRef: {fieldPath: status.podIP}
            - name: WEFT_DOOR_SECRET
              valueFrom:
                secretKeyRef: {name: {{ .run.doorSecret | quote }}, key: door}
          ports:
            - {name: door, containerPort: 29499, protocol: TCP}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: ["ALL"]
              {{- if .run.numRoceGdr }}
              add: ["IPC_LOCK"]
              {{- end }}
          {{- $requests := dict "cpu" (.run.numCpusPerPod | default 1 | toString) "memory" (.run.totalMemoryPerPod | default "1Gi") }}
          {{- $limits := dict "cpu" (.run.limitCpusPerPod | default .run.numCpusPerPod | default 1 | toString) "memory" (.run.limitMemoryPerPod | default .run.totalMemoryPerPod | default "1Gi") }}
          {{- range $resources := list $requests $limits }}
          {{- if $.run.numGpusPerPod }}
          {{- $_ := set $resources "nvidia.com/gpu" (toString $.run.numGpusPerPod) }}
          {{- end }}
          {{- if $.run.numRoceGdr }}
          {{- $_ := set $resources ($.run.roceGdrResName | default "nvidia.com/roce_gdr") (toString $.run.numRoceGdr) }}
          {{- end }}
          {{- end }}
          resources:
            requests: {{ toJson $requests }}
            limits: {{ toJson $limits }}
          volumeMounts:
            {{- if not .run.disableSharedMemory }}
            - {name: shm, mountPath: /dev/shm}
            {{- end }}
            - {name: tmp, mountPath: /tmp}
            {{- if .run.topologyFileConfigMap }}
            - {name: topology, mountPath: /var/run/nvidia-topologyd, readOnly: true}
            {{- end }}
            {{- with .run.sshGitCloneConfig }}
            - {name: git-keys, mountPath: {{ .secretMountPath | default "/tmp/.ssh/keys" | quote }}, readOnly: true}
            - {name: git-hosts, mountPath: {{ .configMapMountPath | default "/tmp/.ssh/hosts" | quote }}, readOnly: true}
            {{- end }}
            {{- with .run.mountNVMe }}
            - {name: nvme, mountPath: {{ .mountPath | default "/workspace/scratch-nvme" | quote }}}
            {{- end }}
            {{- range .run.volumes }}
            - {name: {{ .name | quote }}, mountPath: {{ .mountPath | quote }}}
            {{- end }}
      volumes:
        {{- if not .run.disableSharedMemory }}
        - name: shm
          emptyDir: {medium: Memory}
        {{- end }}
        - name: tmp
          emptyDir: {}
        {{- if .run.topologyFileConfigMap }}
        - name: topology
          configMap: {name: {{ .run.topologyFileConfigMap | quote }}}
        {{- end }}
        {{- with .run.sshGitCloneConfig }}
        # Not the user's own files, so ssh does not mind that they can be read.
        - name: git-keys
          secret: {secretName: {{ .secretName | quote }}, defaultMode: 292}
        - name: git-hosts
          configMap: {name: {{ .configMapName | quote }}}
        {{- end }}
        {{- with .run.mountNVMe }}
        - name: nvme
          ephemeral:
            volumeClaimTemplate:
              spec:
                accessModes: [ReadWriteOnce]
                storageClassName: {{ .storageClassName | default "odf-lvm-vg1" | quote }}
                resources:
                  requests: {storage: {{ .storage | quote }}}
        {{- end }}
        {{- range .run.volumes }}
        - name: {{ .name | quote }}
          persistentVolumeClaim: {claimName: {{ .claimName | quote }}}
        {{- end }}
{{- end -}}
