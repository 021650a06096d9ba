// fmt's own functions, compiled here once instead of in every file that formats something: Debian has fmt as a shared
// library only, which a model.so cannot depend on.
#include <fmt/format-inl.h>

namespace fmt::detail {

// Declared by the headers for one place to define them: this one.
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;

}  // namespace fmt::detail
