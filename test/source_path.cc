#include "source_path.h"

namespace baton {

std::string SourcePath(std::string_view relative) { return std::string(BATON_SOURCE_DIR "/").append(relative); }

}  // namespace baton
