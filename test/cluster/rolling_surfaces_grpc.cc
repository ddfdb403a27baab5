#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs.h"
#include "rolling_surfaces.h"

namespace baton {
namespace {

using Stubs = std::vector<std::unique_ptr<v1::Inference::Stub>>;

Stubs Dial(const std::vector<std::string>& routers) {
  Stubs stubs;
  for (const std::string& address : routers) stubs.push_back(v1::Inference::NewStub(DialTcp(address)));
  return stubs;
}

v1::GenerateRequest Sampled(int max_tokens, int prompt_tokens, const Question& question) {
  v1::GenerateRequest request = MakeRequest(max_tokens, prompt_tokens);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(question.prompt));
  request.mutable_sampling()->set_logprobs(0);
  request.set_cache_salt(question.tag);
  return request;
}

// A stream that is open during the object's lifetime.
struct Stream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  std::string answer;
  size_t tokens = 0;
  absl::Status status;

  Stream(v1::Inference::Stub& stub, const Question& question, const v1::GenerateRequest& request) {
    context.set_wait_for_ready(!question.is_first);
    reader = stub.Generate(&context, request);
  }
  bool Finish(size_t wanted) {
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      for (const int32_t id : response.token_ids()) absl::StrAppend(&answer, " ", id);
      for (const auto& entry : response.logprobs()) {
        absl::StrAppend(&probabilities_, " ", absl::Hex(std::bit_cast<uint32_t>(entry.logprob())));
      }
      tokens += static_cast<size_t>(response.token_ids().size());
    }
    answer += std::exchange(probabilities_, {});
    status = FromGrpc(reader->Finish());
    return status.ok() && tokens == wanted;
  }
  std::string Failure() const { return absl::StrCat(status.ToString(), " after ", tokens, " tokens"); }

 private:
  std::string probabilities_;
};

bool MayBeSentAgain(const absl::Status& status, const grpc::ClientContext& context) {
  const bool was_seen = context.GetServerInitialMetadata().contains("traceparent");
  return absl::IsUnavailable(status) || (absl::IsCancelled(status) && !was_seen);
}

class Generating final : public Surface {
 public:
  explicit Generating(const std::vector<std::string>& routers) : stubs_(Dial(routers)) {}
  Try Ask(const Question& question) override {
    constexpr size_t kTokens = 24;
    Stream stream(*stubs_[question.router], question, Sampled(kTokens, 20 + 7 * question.prompt, question));
    if (stream.Finish(kTokens)) return {.answer = stream.answer};
    return {.failure = stream.Failure(),
            .may_repeat = stream.tokens == 0 && MayBeSentAgain(stream.status, stream.context)};
  }

 private:
  const Stubs stubs_;
};

// Two requests at once, one of which waits for the other's output. If either is refused, the client
// sends both again under other names.
class Pairing final : public Surface {
 public:
  explicit Pairing(const std::vector<std::string>& routers) : stubs_(Dial(routers)) {}
  Try Ask(const Question& question) override {
    constexpr size_t kFirst = 40, kSecond = 16;
    v1::GenerateRequest first = Sampled(kFirst, 30 + question.prompt, question);
    v1::GenerateRequest second = Sampled(kSecond, 20 + 3 * question.prompt, question);
    first.set_request_id(absl::StrCat("first-", question.tag));
    second.set_request_id(absl::StrCat("second-", question.tag));
    v1::OutputOf& reference = *second.mutable_segments()->add_segments()->mutable_output_of();
    reference.set_request_id(first.request_id());
    reference.set_announced(true);

    Stream waits(*stubs_[question.router], question, second), goes(*stubs_[question.router], question, first);
    const bool went = goes.Finish(kFirst);
    // The second request might wait for another request with this name.
    if (!went) waits.context.TryCancel();
    if (waits.Finish(kSecond) && went) return {.answer = absl::StrCat(goes.answer, ";", waits.answer)};
    // Tokens of the first request may have arrived. The second request is then the one that was
    // refused, or that failed with the first.
    const bool refused = went ? waits.tokens == 0 && MayBeSentAgain(waits.status, waits.context)
                              : goes.tokens == 0 && waits.tokens == 0 && MayBeSentAgain(goes.status, goes.context);
    return {.failure = absl::StrCat("first: ", goes.Failure(), ", second: ", waits.Failure()), .may_repeat = refused};
  }

 private:
  const Stubs stubs_;
};

class Prefilling final : public Surface {
 public:
  explicit Prefilling(const std::vector<std::string>& routers) : stubs_(Dial(routers)) {}
  Try Ask(const Question& question) override {
    v1::PrefillOnlyRequest request;
    *request.mutable_segments() = MakeRequest(1, 40 + 11 * question.prompt).segments();
    request.set_cache_salt(question.tag);
    grpc::ClientContext context;
    context.set_wait_for_ready(!question.is_first);
    v1::PrefillOnlyResponse response;
    const absl::Status status = FromGrpc(stubs_[question.router]->PrefillOnly(&context, request, &response));
    if (status.ok()) return {.answer = absl::StrCat(response.usage().prompt_tokens(), " tokens")};
    return {.failure = status.ToString(), .may_repeat = MayBeSentAgain(status, context)};
  }

 private:
  const Stubs stubs_;
};

}  // namespace

std::vector<SurfaceKind> GrpcSurfaces(const std::vector<std::string>& routers) {
  // Two tries for each router. When the second router stops, the client may not have reconnected to
  // the first one yet.
  const size_t tries = 2 * routers.size();
  return {{"Generate", tries, [routers] { return std::make_unique<Generating>(routers); }},
          {"Generate with output_of", tries, [routers] { return std::make_unique<Pairing>(routers); }},
          {"PrefillOnly", tries, [routers] { return std::make_unique<Prefilling>(routers); }}};
}

}  // namespace baton
