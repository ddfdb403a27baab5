#include "server/ui_page.h"

namespace baton {

std::string_view UiPage() {
  return
#include "server/ui_page.inc"
      ;
}

}  // namespace baton
