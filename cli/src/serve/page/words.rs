//! Formats numbers, times and names for pages.

use jiff::Timestamp;
use maud::{Markup, Render, html};
use store::{Namespace, RefName, shown};

use crate::ui::human;

/// A name from any source, on one line, in which no character changes the direction of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(shown(bytes))
    }

    pub(crate) fn of_text(text: &str) -> Self {
        // A backslash in a message is literal, so it is protected from the escaping of paths.
        let plain = text.replace('\\', "\u{fdd0}");
        let Self(name) = Self::of(plain.as_bytes());
        Self(name.replace('\u{fdd0}', "\\"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The last component of a path.
    pub(crate) fn last_of(path: &[u8]) -> Self {
        Self::of(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path))
    }
}

impl Render for Name {
    fn render(&self) -> Markup {
        // Long paths may be broken between components.
        html! {
            bdi {
                @for (at, part) in self.0.split('/').enumerate() {
                    @if at > 0 { "/" wbr; }
                    (part)
                }
            }
        }
    }
}

impl From<&Namespace> for Name {
    fn from(name: &Namespace) -> Self {
        Self::of(name.as_str().as_bytes())
    }
}

impl From<&RefName> for Name {
    fn from(name: &RefName) -> Self {
        Self::of(name.as_str().as_bytes())
    }
}

/// A size; its exact value is in the tooltip.
pub(crate) fn size(bytes: u64) -> Markup {
    let exact = format!("{} bytes", human::count(bytes));
    html! { span title=(exact) { (human::bytes(bytes)) } }
}

/// A time, in UTC.
pub(crate) fn time(time: Timestamp) -> Markup {
    let minutes = time.strftime("%Y-%m-%d %H:%M").to_string();
    let exact = format!("{} UTC", human::time(time));
    html! { time datetime=(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) title=(exact) { (minutes) } }
}

/// `1,234`.
pub(crate) fn count(number: u64) -> Markup {
    html! { (human::count(number)) }
}

/// A bar with the length of `part` in proportion to `whole`.
pub(crate) fn bar(part: u64, whole: u64) -> Markup {
    let share = ratio(part, whole).clamp(0.0, 1.0) * 100.0;
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
            rect.track x="0" y="0" width="100" height="6" {}
            rect.fill x="0" y="0" width=(format!("{share:.1}")) height="6" {}
        }
    }
}

/// The ratio of `part` to `whole`; 0 if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_shows_all_that_it_holds() {
        let text = |bytes: &[u8]| Name::of(bytes).render().into_string();
        assert_eq!(
            text(b"<script>&\"'"),
            "<bdi>&lt;script&gt;&amp;&quot;'</bdi>"
        );
        assert_eq!(
            text("a\u{202e}b\n\u{200b}".as_bytes()),
            "<bdi>a\\u{202e}b\\n\\u{200b}</bdi>"
        );
        assert_eq!(text(b"a/b"), "<bdi>a/<wbr>b</bdi>");
        assert_eq!(text(b"\xff\\"), "<bdi>\\xff\\\\</bdi>");
        assert_eq!(Name::of_text("a\\b\tc").as_str(), "a\\b\\tc");
        assert_eq!(Name::last_of(b"a/b/c").as_str(), "c");
    }

    #[test]
    fn a_size_is_told_short_and_in_full() {
        let told = size(1_234_567).into_string();
        assert_eq!(told, "<span title=\"1,234,567 bytes\">1.23 MB</span>");
        assert_eq!((ratio(1, 0), ratio(1, 4)), (0.0, 0.25));
    }
}
