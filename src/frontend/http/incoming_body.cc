#include "frontend/http/incoming_body.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

HttpProblem TooManyBodies() { return {503, "overloaded: too many large requests are being read"}; }

}  // namespace

std::optional<HttpProblem> IncomingBody::Add(size_t received, std::string& parsed, bool whole) {
  if (decoder_ != nullptr && received_ == 0 && !charge_->Add(BodyDecoder::kMemoryBytes)) return TooManyBodies();
  if (!charge_->Add(received)) return TooManyBodies();
  received_ += received;
  if (received_ > most_) return HttpProblem{413, absl::StrCat("body: longer than ", most_, " bytes")};
  return decoder_ == nullptr ? std::nullopt : Decode(parsed, whole);
}

std::optional<HttpProblem> IncomingBody::Decode(std::string& parsed, bool whole) {
  const size_t before = decoded_.size();
  absl::Status status = decoder_->Decode(parsed, most_, decoded_);
  parsed.clear();
  if (status.ok() && whole) status = decoder_->Finish();
  if (!status.ok()) return HttpProblem{absl::IsOutOfRange(status) ? 413 : 400, std::string(status.message())};
  if (!charge_->Add(decoded_.size() - before)) return TooManyBodies();
  return std::nullopt;
}

void IncomingBody::MoveTo(HttpRequest& request, std::string& parsed) {
  request.body = std::move(decoder_ == nullptr ? parsed : decoded_);
  request.charge = std::move(charge_);
}

}  // namespace baton
