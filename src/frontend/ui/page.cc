#include "frontend/ui/page.h"

namespace baton {

std::string_view UiPage() {
  return
#include "frontend/ui/page.inc"
      ;
}

}  // namespace baton
