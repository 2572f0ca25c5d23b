//! Writes XML for S3: only elements and text.
//!
//! Keys may contain characters that XML cannot represent, or that parsers change. They are written as references, as in
//! S3. Clients that expect such keys request `encoding-type=url`.

use std::fmt::Write;

use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;

use crate::serve::answer::Answer;

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// A document that is being written.
pub(crate) struct Xml {
    text: String,
    root: &'static str,
}

impl Xml {
    /// A document in S3's namespace.
    pub(crate) fn new(root: &'static str) -> Self {
        let text =
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"{NAMESPACE}\">");
        Self { text, root }
    }

    /// An error, which has no namespace.
    pub(crate) fn error() -> Self {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>".to_owned();
        Self {
            text,
            root: "Error",
        }
    }

    /// Writes `<name>value</name>`.
    pub(crate) fn leaf(&mut self, name: &str, value: impl AsRef<str>) {
        // Writing to a string cannot fail.
        let _always = write!(self.text, "<{name}>");
        escape(&mut self.text, value.as_ref());
        let _always = write!(self.text, "</{name}>");
    }

    /// Writes an element; `inner` writes its content.
    pub(crate) fn element(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
        let _always = write!(self.text, "<{name}>");
        inner(self);
        let _always = write!(self.text, "</{name}>");
    }

    /// The whole document.
    pub(crate) fn finish(self) -> String {
        format!("{}</{}>", self.text, self.root)
    }

    /// An answer with this document.
    pub(crate) fn answer(self, status: StatusCode) -> Answer {
        Answer::new(status)
            .with(CONTENT_TYPE, "application/xml")
            .body(self.finish())
    }
}

fn escape(into: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            // Parsers normalize line ends.
            _ if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                let _always = write!(into, "&#x{:x};", u32::from(char));
            }
            _ => into.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_out_of_a_parser_as_they_went_in() {
        let mut xml = Xml::new("Root");
        xml.element("One", |xml| xml.leaf("Key", "a&b<c>\"'\r\n\u{1}\u{e9}"));
        xml.leaf("Empty", "");
        assert_eq!(
            xml.finish(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Root xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <One><Key>a&amp;b&lt;c&gt;&quot;'&#xd;&#xa;&#x1;\u{e9}</Key></One><Empty></Empty></Root>"
        );
    }
}
