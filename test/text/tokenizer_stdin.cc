// A program that encodes frames from tools/compare_tokenizers. A frame is a 4-byte little-endian
// length and that many bytes. The first byte is 'p' to parse special tokens, or 't' to keep them as
// text. The program answers one line of ids for each frame.
#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/str_join.h"
#include "text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_stdin DIRECTORY\n";
    return 2;
  }
  const auto tokenizer = baton::Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  uint8_t header[4];
  while (std::cin.read(reinterpret_cast<char*>(header), sizeof(header))) {
    const uint32_t size = header[0] | header[1] << 8 | header[2] << 16 | uint32_t{header[3]} << 24;
    std::string frame(size, '\0');
    if (size == 0 || !std::cin.read(frame.data(), size)) return 2;
    using SpecialTokens = baton::Tokenizer::SpecialTokens;
    const auto special = frame[0] == 'p' ? SpecialTokens::kParse : SpecialTokens::kAsText;
    std::cout << absl::StrJoin((*tokenizer)->Encode(std::string_view(frame).substr(1), special), " ") << "\n";
  }
  return 0;
}
