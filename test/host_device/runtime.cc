// The functions of CUDA's runtime, for one device or several equal devices.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "host_device/stream.h"

namespace {

using Work = std::function<void()>;
using Works = std::vector<Work>;

struct Queue {
  std::deque<Work> waiting;
  int64_t enqueued = 0, done = 0;
  bool running = false;
  // Receives the enqueued work during a capture. Null if no capture is running.
  std::unique_ptr<Works> capture;
  bool capture_failed = false;  // whether a call of the capture was refused
};

constexpr size_t kDeviceBytes = size_t{8} << 30;
constexpr int kComputeCapability = 9;  // 9.0, with all kernels
constexpr size_t kAlignment = 256;     // the alignment of cudaMalloc
constexpr size_t kPage = 4096;
constexpr std::byte kUnset{0xff};
// The limit that NVIDIA documents for cudaDeviceProp::memPitch.
constexpr size_t kLongestPitch = (size_t{1} << 31) - 1;

struct Allocation {
  size_t bytes;
  bool on_device;  // false: page-locked on the host
  int device;
};

// Guards all of the following. It is held while work runs.
std::recursive_mutex mutex;
std::set<Queue*> queues;
std::map<char*, Allocation> allocated;
size_t used_bytes = 0;  // of device memory
int64_t graph_launches = 0;
int devices = 1;
bool reach_each_other = false;
// (a, b): device a has enabled access to device b's memory.
std::set<std::pair<int, int>> reach;
thread_local bool captures = false;  // whether this thread captures a graph
thread_local int current = 0;        // this thread's device

// The planned fault. See FailAfter.
struct {
  bool planned = false, permanent = false, happened = false, of_graph = false;
  int64_t calls = 0;  // calls until the fault
} fault;

// Returns true if the fault hits this call. REQUIRES: the mutex is held.
bool Refused(bool of_graph = captures) {
  if (!fault.planned || (fault.happened && !fault.permanent)) return false;
  if (!fault.happened && fault.calls-- > 0) return false;
  fault.of_graph = of_graph;
  return fault.happened = true;
}
// The last error of a call. It remains until cudaGetLastError returns it, so the next launch
// reports it too.
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t SetLastError(cudaError_t error) { return last_error = error; }

cudaError_t WaitError() {
  return fault.happened && fault.permanent ? SetLastError(cudaErrorLaunchFailure) : cudaSuccess;
}

// Runs the work of `queue` up to `end`. The work may wait for another stream, which then runs
// first. No stream may wait for itself.
void RunUntil(Queue& queue, int64_t end) {
  BATON_CHECK(!queue.running, "a stream waits for itself");
  queue.running = true;
  while (queue.done < end) {
    BATON_CHECK(!queue.waiting.empty(), "a wait exceeds the enqueued work");
    const Work work = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    work();
    ++queue.done;
  }
  queue.running = false;
}

void RunAll() {
  for (Queue* queue : queues) RunUntil(*queue, queue->enqueued);
}

size_t RoundUp(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// Returns memory whose end, rounded up to the alignment, borders on a page that cannot be accessed.
// Returns null if the host has too little memory.
void* Allocate(size_t bytes, bool on_device) {
  const size_t aligned = RoundUp(bytes, kAlignment), pages = RoundUp(aligned, kPage);
  void* mapped = mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(mapped);
  BATON_CHECK(mprotect(begin + pages, kPage, PROT_NONE) == 0, "a guard page");
  std::memset(begin, static_cast<int>(kUnset), pages);
  char* memory = begin + pages - aligned;
  allocated[memory] = {bytes, on_device, current};
  return memory;
}

// Makes the memory's addresses inaccessible for ever, and returns its size in bytes. Checks that no
// program wrote beside the memory.
size_t Free(void* memory) {
  const auto known = allocated.find(static_cast<char*>(memory));
  BATON_CHECK(known != allocated.end(), "freed memory was allocated");
  const size_t bytes = known->second.bytes, aligned = RoundUp(bytes, kAlignment), pages = RoundUp(aligned, kPage);
  char* begin = known->first + aligned - pages;
  const auto unset = [](const char* from, const char* to) {
    return std::all_of(from, to, [](char byte) { return std::byte(byte) == kUnset; });
  };
  BATON_CHECK(unset(begin, known->first) && unset(known->first + bytes, begin + pages),
              "writes stay inside the allocation");
  void* gone = mmap(begin, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  BATON_CHECK(gone == begin, "freed pages become inaccessible");
  allocated.erase(known);
  return bytes;
}

// Returns the allocation that contains all these bytes, or null.
const Allocation* AllocationOf(const void* memory, size_t bytes) {
  const char* begin = static_cast<const char*>(memory);
  auto found = std::upper_bound(allocated.begin(), allocated.end(), begin,
                                [](const char* at, const auto& entry) { return at < entry.first; });
  if (found == allocated.begin()) return nullptr;
  --found;
  return begin + bytes <= found->first + found->second.bytes ? &found->second : nullptr;
}

bool OnDevice(const void* memory, size_t bytes) {
  const std::lock_guard lock(mutex);
  const Allocation* allocation = AllocationOf(memory, bytes);
  return allocation != nullptr && allocation->on_device;
}

void CheckCopy(const void* to, size_t to_bytes, const void* from, size_t from_bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  BATON_CHECK(OnDevice(to, to_bytes) == to_device && OnDevice(from, from_bytes) == from_device,
              "both ends of a copy match its kind");
}

// The queue of cudaStreamPerThread for one thread.
struct OwnStream {
  const std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  OwnStream() {
    const std::lock_guard lock(mutex);
    queues.insert(queue.get());
  }
  ~OwnStream() {
    const std::lock_guard lock(mutex);
    RunUntil(*queue, queue->enqueued);
    queues.erase(queue.get());
  }
};

}  // namespace

struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
};
struct CUevent_st {
  std::shared_ptr<Queue> queue;  // null until the event is recorded
  int64_t after = 0;             // number of works enqueued before the event
};
struct CUgraph_st {
  std::shared_ptr<const Works> works;
};
struct CUgraphExec_st {
  std::shared_ptr<const Works> works;
};

namespace {

// REQUIRES: `stream` is not null.
const std::shared_ptr<Queue>& QueueOf(cudaStream_t stream) {
  if (stream != cudaStreamPerThread) return stream->queue;
  thread_local const OwnStream own;
  return own.queue;
}

}  // namespace

namespace {

cudaError_t Append(cudaStream_t stream, Work work) {
  static const char* runs = std::getenv("HOST_DEVICE_RUNS");
  static const bool at_once = runs != nullptr && std::strcmp(runs, "at_once") == 0;
  const std::lock_guard lock(mutex);
  if (Refused()) {
    if (stream != nullptr) QueueOf(stream)->capture_failed = true;
    return SetLastError(cudaErrorLaunchFailure);
  }
  if (stream == nullptr) {
    work();
    return cudaSuccess;
  }
  Queue& queue = *QueueOf(stream);
  if (queue.capture != nullptr) {
    queue.capture->push_back(std::move(work));
    return cudaSuccess;
  }
  queue.waiting.push_back(std::move(work));
  ++queue.enqueued;
  if (at_once) RunUntil(queue, queue.enqueued);
  return cudaSuccess;
}

}  // namespace

namespace baton::host_device {

cudaError_t Enqueue(cudaStream_t stream, Work work) {
  (void)Append(stream, std::move(work));
  return cudaGetLastError();
}

Devices::Devices(int count, bool reached) {
  const std::lock_guard lock(mutex);
  devices = count;
  reach_each_other = reached;
}
Devices::~Devices() {
  const std::lock_guard lock(mutex);
  devices = 1;
  reach.clear();
  current = 0;
}

void CheckOnDevice(std::initializer_list<const void*> pointers) {
  const std::lock_guard lock(mutex);
  for (const void* pointer : pointers) {
    if (pointer == nullptr) continue;
    const Allocation* memory = AllocationOf(pointer, 1);
    BATON_CHECK(memory != nullptr && memory->on_device, "kernels receive device memory");
    BATON_CHECK(memory->device == current || reach.contains({current, memory->device}),
                "kernels receive memory that their device can access");
  }
}

int64_t GraphLaunches() {
  const std::lock_guard lock(mutex);
  return graph_launches;
}

void FailAfter(int64_t calls, bool permanent) {
  const std::lock_guard lock(mutex);
  fault = {.planned = true, .permanent = permanent, .calls = calls};
}

Fault EndFaults() {
  const std::lock_guard lock(mutex);
  const auto ended = std::exchange(fault, {});
  if (!ended.happened) return Fault::kNone;
  return ended.of_graph ? Fault::kOfGraph : Fault::kOther;
}

}  // namespace baton::host_device

using baton::host_device::Enqueue;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
  *properties = {};
  std::strcpy(properties->name, "the host");
  properties->major = kComputeCapability;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
  if (attribute != cudaDevAttrComputeCapabilityMajor && attribute != cudaDevAttrComputeCapabilityMinor) {
    return cudaErrorNotSupported;
  }
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? kComputeCapability : 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const std::lock_guard lock(mutex);
  *free_bytes = kDeviceBytes - used_bytes;
  *total_bytes = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(mutex);
  RunAll();
  return WaitError();
}
cudaError_t cudaDeviceReset() { return cudaErrorNotSupported; }
cudaError_t cudaDeviceCanAccessPeer(int* reachable, int device, int other) {
  if (std::min(device, other) < 0 || std::max(device, other) >= devices) return cudaErrorInvalidDevice;
  *reachable = reach_each_other && device != other;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  const std::lock_guard lock(mutex);
  if (!reach_each_other || other == current) return SetLastError(cudaErrorPeerAccessUnsupported);
  return reach.emplace(current, other).second ? cudaSuccess : SetLastError(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaErrorNotSupported; }
const char* cudaGetErrorString(cudaError_t) { return "refused by test/host_device"; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (captures) return cudaErrorStreamCaptureUnsupported;
  if (Refused() || bytes > kDeviceBytes - used_bytes) return SetLastError(cudaErrorMemoryAllocation);
  *memory = Allocate(bytes, /*on_device=*/true);
  if (*memory == nullptr) return SetLastError(cudaErrorMemoryAllocation);
  used_bytes += bytes;
  return cudaSuccess;
}
// Waits for the device, as the real cudaFree does.
cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(mutex);
  BATON_CHECK(!captures, "device memory is freed while a graph is captured");
  RunAll();
  used_bytes -= Free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (captures) return cudaErrorStreamCaptureUnsupported;
  *memory = Refused() ? nullptr : Allocate(bytes, /*on_device=*/false);
  return *memory == nullptr ? SetLastError(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return cudaMallocHost(memory, bytes); }
// Does not wait for the device. The caller must wait first.
cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(mutex);
  Free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (captures) return cudaErrorStreamCaptureUnsupported;
  if (bytes > 0) CheckCopy(to, bytes, from, bytes, kind);
  return Append(nullptr, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > 0) CheckCopy(to, bytes, from, bytes, kind);
  return Append(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > std::min(to_pitch, from_pitch) || std::max(to_pitch, from_pitch) > kLongestPitch) {
    return cudaErrorInvalidPitchValue;
  }
  if (rows == 0) return cudaSuccess;
  CheckCopy(to, (rows - 1) * to_pitch + width, from, (rows - 1) * from_pitch + width, kind);
  return Append(stream, [=] {
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    }
  });
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                         cudaMemcpyKind kind) {
  if (captures) return cudaErrorStreamCaptureUnsupported;
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, kind, nullptr);
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  BATON_CHECK(OnDevice(memory, bytes), "memory of the device is set");
  return Append(nullptr, [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  BATON_CHECK(OnDevice(memory, bytes), "memory of the device is set");
  return Append(stream, [=] { std::memset(memory, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  *stream = new CUstream_st;
  queues.insert((*stream)->queue.get());
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (captures) return cudaErrorStreamCaptureUnsupported;
  if (stream != nullptr) RunUntil(*QueueOf(stream), QueueOf(stream)->enqueued);
  return WaitError();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  RunUntil(*stream->queue, stream->queue->enqueued);
  queues.erase(stream->queue.get());
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  return Append(stream, [awaited = event->queue, after = event->after] {
    if (awaited != nullptr && awaited->done < after) RunUntil(*awaited, after);
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (stream == nullptr) return cudaSuccess;
  *event = {QueueOf(stream), QueueOf(stream)->enqueued};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (captures) return cudaErrorStreamCaptureUnsupported;
  if (event->queue != nullptr && event->queue->done < event->after) RunUntil(*event->queue, event->after);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  return event->queue == nullptr || event->queue->done >= event->after ? cudaSuccess : SetLastError(cudaErrorNotReady);
}
// All work takes the same time, because this device cannot show which is faster.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(mutex);
  BATON_CHECK(!captures, "one capture in a thread");
  captures = true;
  QueueOf(stream)->capture = std::make_unique<Works>();
  QueueOf(stream)->capture_failed = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex);
  captures = false;
  const std::unique_ptr<Works> works = std::move(QueueOf(stream)->capture);
  if (QueueOf(stream)->capture_failed) return SetLastError(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::make_unique<Works>(*works)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replay, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(mutex);
  if (Refused(/*of_graph=*/true)) return cudaErrorMemoryAllocation;
  *replay = new CUgraphExec_st{graph->works};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay) {
  delete replay;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  ++graph_launches;
  return Append(stream, [works = replay->works] {
    for (const Work& work : *works) work();
  });
}

}  // extern "C"
