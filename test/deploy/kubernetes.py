"""usage: kubernetes.py base|overlays BUILD_FOLDER

Checks that the manifests are valid and agree with each other, and that the programs accept their
arguments and files.

- base: the files as they are.
- overlays: the output of `kubectl kustomize` for each overlay, with components/secured and without.
  Exits with 77 if there is no kubectl."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
MODEL = ROOT / "test/golden/tiny_llama3_bf16"
# Versions of Kubernetes. gRPC probes are stable since the first of them.
VERSIONS = ("1.27", "1.32", "1.37")
REFUSAL = "may be reached from other machines"
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


class Manifests:
    def __init__(self, name, documents, config, secured=False):
        self.name = name + (" secured" if secured else "")
        self.overlay = name
        self.secured = secured
        self.documents = documents
        # The files of the generated ConfigMap.
        self.config = {file: tomllib.loads(text) for file, text in config.items()}

    def of_kind(self, *kinds):
        return [document for document in self.documents if document["kind"] in kinds]

    def workloads(self):
        """Returns component -> (workload, pod spec, container)."""
        found = {}
        for workload in self.of_kind("Deployment", "StatefulSet"):
            pod = workload["spec"]["template"]["spec"]
            found[workload["metadata"]["labels"]["app.kubernetes.io/component"]] = (workload, pod, pod["containers"][0])
        return found


def base():
    kustomization = yaml.safe_load((KUBERNETES / "base/kustomization.yaml").read_text())
    documents = [yaml.safe_load((KUBERNETES / "loader.yaml").read_text())]
    for resource in kustomization["resources"]:
        documents += yaml.safe_load_all((KUBERNETES / "base" / resource).read_text())
    files = kustomization["configMapGenerator"][0]["files"]
    return Manifests("base", documents, {pathlib.Path(f).name: (KUBERNETES / "base" / f).read_text() for f in files})


def rendered(folder):
    text = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


def overlay(name, secured):
    folder = KUBERNETES / "overlays" / name
    if secured:
        with tempfile.TemporaryDirectory() as work:
            relative = {key: [os.path.relpath(path, os.path.realpath(work))] for key, path in
                        {"resources": folder, "components": KUBERNETES / "components/secured"}.items()}
            pathlib.Path(work, "kustomization.yaml").write_text(yaml.safe_dump(relative))
            documents = rendered(work)
    else:
        documents = rendered(folder)
    config = next(document["data"] for document in documents if document["kind"] == "ConfigMap")
    return Manifests(name, documents, config, secured)


def schema_problems(manifests):
    for document in manifests.documents:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = "/".join(map(str, error.absolute_path))
                yield f"{document['kind']} {document['metadata']['name']}: {where}: {error.message} (Kubernetes {version})"


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def agreement_problems(manifests):
    """Yields ports, names and seconds that differ between the files that state them."""
    for component, (workload, pod, container) in manifests.workloads().items():
        config = manifests.config[f"{component}.toml"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        listens = {"grpc": "listen", "http": "http", "metrics": "metrics"}
        if ports != {name: port_of(config[key]) for name, key in listens.items() if key in config}:
            yield f"{component}: its configuration does not listen on {ports}"
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(name, {})
            if probe.get("grpc", {}).get("port", ports["grpc"]) != ports["grpc"] or (
                    probe.get("httpGet", {}).get("port", "grpc") not in ports):
                yield f"{component}: {name} probes another port"
            if manifests.secured and "grpc" in probe:
                yield f"{component}: {name} has no certificate to present"
        if config["grace"] >= pod["terminationGracePeriodSeconds"]:
            yield f"{component}: grace is not below terminationGracePeriodSeconds"
        volumes = {volume["name"] for volume in pod["volumes"]}
        if volumes != {mount["name"] for mount in container["volumeMounts"]}:
            yield f"{component}: volumes and mounts differ"
        mounts = tuple(mount["mountPath"] + "/" for mount in container["volumeMounts"])
        for word in container["command"]:
            if word.startswith("/") and not word.startswith(mounts):
                yield f"{component}: {word} is not mounted"
        if component == "router":
            continue
        service = workload["spec"]["serviceName"]
        expected = [f"srv:_grpc._tcp.{service}"]
        if manifests.config["router.toml"][f"{component}-workers"] != expected:
            yield f"router.toml: {component}-workers: expected {expected}"
        spec = next(s["spec"] for s in manifests.of_kind("Service") if s["metadata"]["name"] == service)
        if (spec["clusterIP"], spec["publishNotReadyAddresses"]) != ("None", True) or spec["ports"] != [
                {"name": "grpc", "port": ports["grpc"]}]:
            yield f"{component}: its Service has no SRV record for each pod"
        if f"$(POD_NAME).{service}.$(POD_NAMESPACE).svc:{ports['grpc']}" not in container["command"]:
            yield f"{component}: advertises another name than its pod's"


def scrape_problems(manifests):
    for component, (workload, _, _) in manifests.workloads().items():
        metrics = port_of(manifests.config[f"{component}.toml"]["metrics"])
        annotations = workload["spec"]["template"]["metadata"].get("annotations", {})
        if annotations != {"prometheus.io/scrape": "true", "prometheus.io/port": str(metrics), "prometheus.io/path": "/metrics"}:
            yield f"{component}: is not scraped at port {metrics}"


def security_problems(manifests):
    for component, (_, pod, container) in manifests.workloads().items():
        context = container["securityContext"]
        if not (pod["securityContext"]["runAsNonRoot"] and context["readOnlyRootFilesystem"]
                and not context["allowPrivilegeEscalation"] and context["capabilities"] == {"drop": ["ALL"]}
                and not pod["automountServiceAccountToken"]):
            yield f"{component}: has more rights than it needs"
    components = set(manifests.workloads())
    for document in manifests.of_kind("NetworkPolicy", "PodDisruptionBudget", "Service"):
        spec = document["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        labels = selector.get("matchLabels", selector)
        if labels.get("app.kubernetes.io/component", "router") not in components:
            yield f"{document['kind']} {document['metadata']['name']}: selects no pod"


def allowed(manifests):
    """Returns (from, to, port) between components that the network policies of both ends allow."""
    ends = {"ingress": set(), "egress": set()}
    for policy in manifests.of_kind("NetworkPolicy"):
        own = policy["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component")
        for direction, side in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction, []):
                for peer in rule[side]:
                    other = peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
                    for port in rule["ports"] if own and other else []:
                        pair = (other, own) if direction == "ingress" else (own, other)
                        ends[direction].add((*pair, port["port"], port.get("endPort")))
    return ends


def client_problems(manifests):
    """Checks that the Service and the network policies give clients the router's two ports."""
    config = manifests.config["router.toml"]
    expected = {port_of(config["listen"]), port_of(config["http"])}
    service = next(s for s in manifests.of_kind("Service") if s["metadata"]["name"] == "baton")
    by_service = {port["port"] for port in service["spec"]["ports"]}
    by_policy = {port["port"] for policy in manifests.of_kind("NetworkPolicy")
                 for rule in policy["spec"].get("ingress", [])
                 if any("baton-client" in peer.get("podSelector", {}).get("matchLabels", {}) for peer in rule["from"])
                 for port in rule["ports"]}
    encrypted = {port.get("appProtocol") == "https" for port in service["spec"]["ports"]} | {
        manifests.workloads()["router"][2]["readinessProbe"]["httpGet"].get("scheme") == "HTTPS"}
    if encrypted != {manifests.secured}:
        yield "clients: Service and readiness probe disagree about TLS"
    if not by_service == by_policy == expected:
        yield f"clients: expected ports {expected}, got {by_service} by the Service, {by_policy} by network policies"


def network_problems(manifests):
    prefill, decode = (port_of(manifests.config[f"{role}.toml"]["listen"]) for role in ("prefill", "decode"))
    ranges = {tuple(int(port) for port in variable["value"].split("-"))
              for _, _, container in manifests.workloads().values() for variable in container.get("env", [])
              if variable["name"] == "UCX_TCP_PORT_RANGE"}
    (kv,) = ranges  # the same for both roles
    expected = {("router", "prefill", prefill, None), ("router", "decode", decode, None),
                ("prefill", "decode", decode, None), ("prefill", "decode", *kv), ("decode", "prefill", *kv)}
    for direction, found in allowed(manifests).items():
        if found != expected:
            yield f"network policies, {direction}: expected {sorted(expected, key=str)}, got {sorted(found, key=str)}"


def size_of(text):
    return int(text[:-2]) * UNITS[text[-2:]]


def memory_problems(manifests):
    """Yields KV above shared memory, and shared memory above the container's memory."""
    for component, (_, pod, container) in manifests.workloads().items():
        limit = size_of(container["resources"]["limits"]["memory"])
        shm = next((size_of(volume["emptyDir"]["sizeLimit"]) for volume in pod["volumes"] if volume["name"] == "shm"), 0)
        kv = manifests.config[f"{component}.toml"].get("kv-memory-mb", 0) << 20
        if component != "router" and not kv < shm < limit:
            yield f"{component}: expected KV {kv} < shared memory {shm} < limit {limit}"


def documented_certificates(folder):
    """Runs the commands of docs/security.md for the files of Secret baton-peer.

    Returns the names that the certificate is for."""
    text = (ROOT / "docs/security.md").read_text()
    (block,) = [block for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M) if "openssl req" in block]
    subprocess.run(["bash", "-euc", block], cwd=folder, check=True, capture_output=True)
    names = subprocess.run(["openssl", "x509", "-in", "tls.crt", "-noout", "-ext", "subjectAltName"], cwd=folder,
                           check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"DNS:([*\w.-]+)", names))


def secret_problems(manifests, binaries, folder):
    """Makes the files of all Secrets. Two of them share a certificate here."""
    names = documented_certificates(folder)
    # The names that SRV records give to routers, and that decode workers advertise to prefill
    # workers.
    expected = {f"*.{workload['spec']['serviceName']}.baton.svc{domain}" for role, (workload, _, _) in manifests.workloads().items()
                if role != "router" for domain in (".cluster.local", "")} - {"*.baton-prefill.baton.svc"}
    if names != expected:
        yield f"docs/security.md: expected certificates for {expected}, got {names}"
    drawn = subprocess.run([binaries / "baton", "key"], check=True, capture_output=True, text=True).stdout
    (hashed,) = re.findall('"sha256:[0-9a-f]{64}"', drawn)
    pathlib.Path(folder, "keys.toml").write_text(f"[team]\nkeys = [{hashed}]\n")


def check(command):
    return subprocess.run([*command, "--check"], capture_output=True, text=True)


def is_guarded(command):
    """Whether the program would refuse the command without its keys or certificates."""
    return "--open=false" in command and REFUSAL in check(command[:command.index("--open=false") + 1]).stderr


def program_problems(manifests, binaries):
    """Runs each container's command with --check, on a small model and this machine's processor."""
    with tempfile.TemporaryDirectory() as folder:
        if manifests.secured:
            yield from secret_problems(manifests, binaries, folder)
        for component, (workload, _, container) in manifests.workloads().items():
            config = manifests.config[f"{component}.toml"]
            model = config["model"]
            config = config | {"model": [str(MODEL)] if isinstance(model, list) else str(MODEL)}
            if component != "router":
                config |= {"kv-memory-mb": 8, "device": "cpu", "kv-devices": "lo"}
            file = pathlib.Path(folder, f"{component}.toml")
            file.write_text("\n".join(f"{key} = {toml(value)}" for key, value in config.items()))
            command = [word.replace("$(POD_NAME)", workload["metadata"]["name"] + "-0").replace("$(POD_NAMESPACE)", "baton")
                       for word in container["command"]]
            command = [re.sub("^/etc/baton-(keys|peer|tls)", folder, word) for word in command]
            command[0] = binaries / command[0]
            command[command.index("--config") + 1] = file
            run = check(command)
            if run.returncode != 0:
                yield f"{component} --check: {run.stdout}{run.stderr}"
            if manifests.secured and not is_guarded(command):
                yield f"{component}: its configuration still has `open = true`"


def toml(value):
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()  # true, not True


def gpu_problems(manifests):
    _, pod, container = manifests.workloads()["decode"]
    terms = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    if terms[0]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] != "prefill" or not pod["hostIPC"]:
        yield "decode: must run on the node of its prefill workers, for cuda_ipc"
    if container["resources"]["limits"].get("nvidia.com/gpu") != "1":
        yield "decode: requests no GPU"


def problems_of(manifests, binaries):
    checks = [schema_problems, agreement_problems, scrape_problems, security_problems, client_problems, network_problems]
    if manifests.overlay != "base":
        checks.append(memory_problems)
    if manifests.overlay == "gpu":
        checks.append(gpu_problems)
    found = [problem for problems in checks for problem in problems(manifests)]
    return [f"{manifests.name}: {problem}" for problem in found + list(program_problems(manifests, binaries))]


def main():
    what, build = sys.argv[1:]
    if what == "overlays" and not shutil.which("kubectl"):
        print("SKIPPED: the overlays for Kubernetes: there is no kubectl, which has kustomize")
        return 77
    all_manifests = [base()] if what == "base" else [overlay(name, secured) for name in ("cpu", "gpu")
                                                     for secured in (False, True)]
    problems = [problem for manifests in all_manifests
                for problem in problems_of(manifests, pathlib.Path(build).resolve() / "bin")]
    print("\n".join(problems) or f"kubernetes: {', '.join(m.name for m in all_manifests)}: as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
