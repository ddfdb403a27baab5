// What each program can be told. flags.cc gives every field its name, help and limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/staging/staging.h"
#include "membership/etcd_options.h"
#include "router/router_core.h"
#include "router/workload.h"
#include "rpc/tls_files.h"

namespace baton {

struct CommonOptions {
  std::string log_level = "info";
  std::string log_format = "text";      // or "json"
  std::string metrics = "127.0.0.1:0";  // host:port; empty, "off" or "0": none
  bool vllm_metrics = false;            // also under vLLM's names
  double grace_seconds = 10;            // for running requests, after SIGTERM or SIGINT
  bool check = false;                   // only validate
  bool open = false;                    // may be called from other machines without keys or certificates
  TlsFiles peer;                        // between router and workers; empty: no encryption
  EtcdOptions etcd;
};

struct RouterOptions {
  CommonOptions common;
  std::string listen = "127.0.0.1:7070";
  std::string http = "127.0.0.1:8000";  // host:port; empty or "off": none
  // Seconds in which a stream over HTTP says nothing, at most. Longer than requests wait for room or for a worker
  // (30 s): until the head is sent they may end with a status that clients know to try again.
  double stream_silence = 35;
  std::string keys;                          // file of API keys; empty: anyone may call
  TlsFiles tls;                              // for clients, over gRPC and HTTP; no authority
  std::vector<std::string> models;           // directories
  std::vector<std::string> prefill_workers;  // as membership/worker_names.h
  std::vector<std::string> decode_workers;
  std::string dns_server;                        // IP:PORT; empty: the system's
  double dns_seconds = 5;                        // between two questions
  std::chrono::milliseconds dns_patience{4000};  // for the answer about one name; no flag sets it
  RouterLimits limits;
  Schedule schedule = Schedule::kFirstCome;
  std::string max_sessions = "auto";  // a number, auto or off
  bool shadow_prefill = true;
};

// Reads a router's options once more, from the command line and the configuration file.
using ReadAgain = std::function<absl::StatusOr<RouterOptions>()>;

struct WorkerOptions {
  CommonOptions common;
  std::string listen = "127.0.0.1:0";
  std::string advertise;          // host:port under which peers reach it; empty: where it listens
  std::string register_under;     // as membership/worker_names.h, of etcd; empty: it is registered nowhere
  int64_t lease_seconds = 10;     // for which etcd keeps a worker that is heard of no more
  std::string kv_devices = "lo";  // network devices that KV blocks may take, as in UCX_NET_DEVICES
  std::string model;              // directory
  std::string prefill_module;     // decode: directory of the module whose KV it takes; empty: its own
  int threads = 0;                // 0: one for each core
  std::string device = "auto";    // where it computes: cpu, cuda, cuda:N,M,... or auto
  int tensor_parallel = 1;        // ranks that compute the model together
  bool same_bits = false;         // cuda: bit-equal results for any chunking and batch
  int64_t kv_memory_mb = 0;       // 0: 1024 on the CPU, on a GPU nine tenths of what the weights leave
  int64_t kv_blocks = 0;          // 0: as many as kv_memory_mb holds
  int64_t kv_host_mb = 0;         // prefill: memory for evicted KV blocks
  std::string kv_disk_dir;        // prefill: where those go that memory evicts
  int64_t kv_disk_mb = 0;
  int64_t step_tokens = 0;       // prefill: most tokens computed in a step; 0: what suits the device (below)
  int64_t increment = 0;         // prefill: tokens of a growing prompt that are worth a share of a step; 0: as measured
  int64_t growing_step_ms = 25;  // prefill: how long streaming prompts fill a step at most
  int32_t max_batch = 0;         // decode: most requests in a step; 0: what suits the device (below)
  bool verify_kv = false;        // decode: KV blocks are used only with the bytes that were sent
  bool guard_kv = false;         // KV blocks are written under the key of a reservation, or not at all
  int64_t max_requests = 1024;   // prefill: most requests at once, and as many that grow
};

// Of `baton serve`: all roles in one process.
struct ServeOptions {
  RouterOptions router;
  WorkerOptions worker;
  std::vector<std::string> decoders;  // directories, beside the model's own
};

// How many blocks of `block_bytes` the options ask for on the CPU. INVALID_ARGUMENT: none fits, or more than this
// machine's memory holds (both are named).
absl::StatusOr<int64_t> KvBlocks(const WorkerOptions& options, int64_t block_bytes);

// Steps for which the device's arithmetic, and its memory's bandwidth, are used well, where the options leave that
// open: bench/results/README.md has what longer ones would gain.
void SetStepDefaults(WorkerOptions& options, bool on_gpu);

// The GPUs of a text like "cuda:0,2"; empty: it is not one.
std::vector<int> CudaDevicesIn(const std::string& text);
// The GPUs that `--device` names, one for each rank; empty: it names none. INVALID_ARGUMENT: it names more or fewer.
absl::StatusOr<std::vector<int>> CudaDevices(const WorkerOptions& options);

// The same on devices where weights and activations leave one worker `left` bytes.
absl::StatusOr<int64_t> KvBlocksOnDevice(const WorkerOptions& options, int64_t block_bytes, int64_t left);

// How much evicted KV the options keep, in blocks of `block_bytes`. INVALID_ARGUMENT: less than a block, or more than
// this machine's memory (both are named); a disk without directory or size, or without --kv-host-mb.
absl::StatusOr<StagingOptions> Staging(const WorkerOptions& options, int64_t block_bytes);

// How many of `cores` a control group's CPU quota grants, rounded up. `cpu_max` is its file of this name: "QUOTA
// PERIOD" in microseconds, or "max PERIOD".
int CoresWithin(const std::string& cpu_max, int cores);

// threads, or the number of cores this process may use (affinity and control group), which is also the most.
int Threads(const WorkerOptions& options);

// The address that peers are told. INVALID_ARGUMENT: it listens on all interfaces and --advertise does not say which.
absl::StatusOr<WorkerAddress> AdvertisedAddress(const WorkerOptions& options, const std::string& listening);

// Why `bytes` of KV cannot lie in `directory`, where shared memory is files, and what to do about it; empty: they can.
std::string SharedMemoryShortage(const std::string& directory, int64_t bytes);

// INVALID_ARGUMENT: a field that is missing, or contradicts another; files that are wrong; an address that others may
// reach without keys (router) or certificates (workers), unless `open`.
absl::Status Validate(const RouterOptions& options);
absl::Status ValidateAccess(const RouterOptions& options);  // the part that `baton serve` needs as well
// That whoever listens to the network reads keys; empty: they do not.
std::string KeysInTheClear(const RouterOptions& options);
absl::Status Validate(const WorkerOptions& options);

}  // namespace baton
