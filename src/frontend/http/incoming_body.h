// The body of a request while it arrives: its limits, its memory and its decoding.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "frontend/http/body_bytes.h"
#include "frontend/http/body_decoder.h"
#include "frontend/http/http_message.h"

namespace baton {

// Not thread-safe.
class IncomingBody {
 public:
  // `charge` is the request's share of the memory for bodies. `decoder` is null if the body is not
  // encoded. `most` is an upper bound on the bytes received, and on the bytes after decoding.
  IncomingBody(std::unique_ptr<BodyCharge> charge, std::unique_ptr<BodyDecoder> decoder, size_t most)
      : charge_(std::move(charge)), decoder_(std::move(decoder)), most_(most) {}

  // `received` more bytes have arrived. `parsed` has the bytes of the body among them; if the body
  // is not encoded, also all earlier ones. Replaces encoded bytes by nothing, so that the parser
  // can append the next ones. `whole` means that the body is complete. Returns a reason to refuse
  // the request, if there is one.
  std::optional<HttpProblem> Add(size_t received, std::string& parsed, bool whole);
  // Moves the body, and its share of the memory, to the request. `parsed` is as in Add. REQUIRES:
  // the body is complete. No other call may follow.
  void MoveTo(HttpRequest& request, std::string& parsed);

 private:
  // Decodes each part as it arrives. One event then takes little time, because common texts grow by
  // a small factor. A part that grows by a large one soon exceeds the limit.
  std::optional<HttpProblem> Decode(std::string& parsed, bool whole);

  std::unique_ptr<BodyCharge> charge_;
  std::unique_ptr<BodyDecoder> decoder_;
  const size_t most_;
  size_t received_ = 0;
  std::string decoded_;
};

}  // namespace baton
