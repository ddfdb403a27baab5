// The routers attached to one worker, and the requests that each of them submitted.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "rpc/attach_server.h"
#include "rpc/grpc_status.h"

namespace baton {

// Thread-safe. All calls of a stream happen under the mutex, so a stream is not used after Remove.
template <typename Command, typename Event>
class RouterStreams {
 public:
  using Stream = AttachServer<Command, Event>;

  // Adds a stream and sends it the events in `first`.
  void Add(Stream* stream, std::vector<Event> first) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    for (Event& event : first) stream->Send(std::move(event));
  }

  // Removes a stream. Returns its requests, which the worker must cancel.
  std::vector<RequestId> Remove(Stream* stream) {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, stream);
    std::vector<RequestId> orphans;
    absl::erase_if(owners_, [&](const auto& entry) {
      if (entry.second.stream == stream) orphans.push_back(entry.first);
      return entry.second.stream == stream;
    });
    return orphans;
  }

  // Records that `stream` submitted request `id`. `trace_id` is for logs. Returns ALREADY_EXISTS if
  // a live request has this id, possibly from another router.
  absl::Status Register(const RequestId& id, Stream* stream, std::string trace_id) {
    const std::lock_guard lock(mutex_);
    if (owners_.try_emplace(id, Owner{stream, std::move(trace_id)}).second) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("request_id: '", id, "' is live on this worker"));
  }

  // Returns the trace id of a live request. Returns an empty string for any other request.
  std::string TraceOf(const RequestId& id) {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(id);
    return found == owners_.end() ? "" : found->second.trace_id;
  }

  // Returns whether the router of `stream` submitted request `id`.
  bool Owns(const RequestId& id, const Stream* stream) {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(id);
    return found != owners_.end() && found->second.stream == stream;
  }

  // Returns whether `stream` may cancel request `id`. Only a request of another router is
  // protected.
  bool MayCancel(const RequestId& id, const Stream* stream) {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(id);
    return found == owners_.end() || found->second.stream == stream;
  }

  void SendTo(Stream* stream, Event event) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::count(streams_, stream) > 0) stream->Send(std::move(event));
  }

  // Sends an event of a request to its router. Does nothing if the router is gone.
  void Send(const RequestId& id, Event event) {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(id);
    if (found != owners_.end()) found->second.stream->Send(std::move(event));
  }

  // Sends the last event of a request to its router. Does nothing if the router is gone.
  void SendLast(const RequestId& id, Event event) {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(id);
    if (found == owners_.end()) return;
    found->second.stream->Send(std::move(event));
    owners_.erase(found);
  }

  // Sends one event to each router that has items. `add(event, item, trace_id)` appends an item of
  // one request to the event of its router. It returns true if the item is the last of its request.
  template <typename Items, typename Add>
  void SendEach(Items&& items, Add add) {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<Stream*, Event>> events;  // one per router, so few
    for (auto& item : items) {
      const auto owner = owners_.find(item.request_id);
      if (owner == owners_.end()) continue;
      const auto& [stream, trace_id] = owner->second;
      auto event = std::ranges::find(events, stream, &std::pair<Stream*, Event>::first);
      if (event == events.end()) event = events.insert(event, {stream, stream->NewEvent()});
      if (add(event->second, item, trace_id)) owners_.erase(owner);
    }
    for (auto& [stream, event] : events) stream->Send(std::move(event));
  }

  void SendAll(const Event& event) {
    const std::lock_guard lock(mutex_);
    for (Stream* stream : streams_) stream->Send(event);
  }

  // Sends each router a report of load, with the number of its commands that have arrived.
  void SendLoad(const Event& event) {
    const std::lock_guard lock(mutex_);
    for (Stream* stream : streams_) {
      Event load = event;
      load.mutable_load()->set_commands(stream->commands());
      stream->Send(std::move(load));
    }
  }

  void CloseAll(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    for (Stream* stream : streams_) stream->Close(ToGrpc(status));
  }

 private:
  struct Owner {
    Stream* stream = nullptr;
    std::string trace_id;
  };
  std::mutex mutex_;  // guards the members below
  std::vector<Stream*> streams_;
  absl::flat_hash_map<RequestId, Owner> owners_;  // of live requests
};

}  // namespace baton
