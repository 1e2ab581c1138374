// Text of unknown origin inside HTML.
#pragma once

#include <string>
#include <string_view>

namespace hedgerow::report {

// For text and for attribute values in double or single quotes: & < > " ' become entities.
std::string escape_html(std::string_view text);

// For JSON inside <script type="application/json">: outside strings JSON has none of < > &, and
// inside strings they become \u003c \u003e \u0026, as do U+2028 and U+2029, so that no element can
// be closed or opened and the value stays the same.
std::string escape_json_for_script(std::string_view json);

}  // namespace hedgerow::report
