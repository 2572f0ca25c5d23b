//! Listings: ListBuckets, and both versions of ListObjects.
//!
//! A page ends after a key or a common prefix, and the next page continues after that text, even if it no longer
//! exists. The token of a page holds nothing else.

use hyper::StatusCode;
use jiff::Timestamp;
use store::{Namespace, Result};

use crate::serve::answer::Answer;
use crate::serve::s3::bucket::{Bucket, Changed, Object};
use crate::serve::s3::fault::{Fault, Outcome};
use crate::serve::s3::route;
use crate::serve::s3::walk::{KeyWalk, behind};
use crate::serve::s3::xml::Xml;
use crate::serve::text::{self, hex, unhex};

/// Maximum keys and prefixes per page.
const PAGE_MAX: usize = 1000;
/// The first letter of a token: it continues after a key or prefix, or after another text.
const TOKENS: [&str; 2] = ["k", "t"];
pub(crate) const TIME: &str = "%Y-%m-%dT%H:%M:%S.000Z";

/// The parameters of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    prefix: String,
    delimiter: Option<String>,
    after: After,
    max: usize,
    is_encoded: bool,
    is_second: bool,
    /// Parameters to repeat in the answer: `marker` or `start-after`, and the token.
    told: (Option<String>, Option<String>),
    with_owner: bool,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    /// After a key, or after all keys with a prefix.
    Name(String),
    /// After a plain text.
    Text(String),
}

/// A page.
#[derive(Default)]
pub(crate) struct Page {
    objects: Vec<(String, Object, Changed)>,
    prefixes: Vec<String>,
    next: Option<Token>,
}

struct Token {
    name: String,
    is_text: bool,
}

impl Asked {
    /// Parses the query.
    pub(crate) fn parse(query: &[(String, String)]) -> Outcome<Self> {
        let value = |name: &str| text::value(query, name).map(str::to_owned);
        let is_second = match text::value(query, "list-type") {
            None => false,
            Some("2") => true,
            Some(other) => {
                return Err(Fault::argument(
                    "list-type",
                    other,
                    "Invalid List Type specified in Request",
                ));
            }
        };
        let is_encoded = match text::value(query, "encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(other) => {
                let message = "Invalid Encoding Method specified in Request";
                return Err(Fault::argument("encoding-type", other, message));
            }
        };
        let max = match text::value(query, "max-keys") {
            None | Some("") => PAGE_MAX,
            Some(text) => {
                let number: Option<u32> = text.parse().ok().filter(|max| *max <= i32::MAX as u32);
                let message = "Argument max-keys must be an integer between 0 and 2147483647";
                let number = number.ok_or_else(|| Fault::argument("max-keys", text, message))?;
                PAGE_MAX.min(number as usize)
            }
        };
        let start = value(if is_second { "start-after" } else { "marker" });
        let token = value("continuation-token").filter(|_| is_second);
        let after = match (&token, start.as_deref()) {
            (Some(token), _) => After::of_token(token)?,
            (None, None | Some("")) => After::Nothing,
            (None, Some(start)) => After::Name(start.to_owned()),
        };
        Ok(Self {
            prefix: value("prefix").unwrap_or_default(),
            delimiter: value("delimiter").filter(|delimiter| !delimiter.is_empty()),
            after,
            max,
            is_encoded,
            is_second,
            told: (start, token),
            with_owner: !is_second || text::value(query, "fetch-owner") == Some("true"),
        })
    }

    /// The common prefix of a key: up to the first delimiter after the requested prefix.
    fn common<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.as_deref()?;
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let end = self.prefix.len() + rest.find(delimiter)? + delimiter.len();
        key.get(..end)
    }

    /// The smallest text that may be on the page.
    fn begin(&self) -> Vec<u8> {
        let begin = match &self.after {
            After::Nothing => Vec::new(),
            After::Text(text) => format!("{text}\0").into_bytes(),
            After::Name(name) => match self.common(name).and_then(behind) {
                Some(behind) => behind,
                None => format!("{name}\0").into_bytes(),
            },
        };
        begin.max(self.prefix.clone().into_bytes())
    }

    fn shown(&self, text: &str) -> String {
        match self.is_encoded {
            true => text::escaped_path(text),
            false => text.to_owned(),
        }
    }
}

impl After {
    fn of_token(token: &str) -> Outcome<Self> {
        let parsed = token.split_at_checked(1).and_then(|(kind, digits)| {
            let name = String::from_utf8(unhex(digits)?).ok()?;
            match TOKENS.iter().position(|known| *known == kind)? {
                0 => Some(Self::Name(name)),
                _ => Some(Self::Text(name)),
            }
        });
        let message = "The continuation token provided is incorrect";
        parsed.ok_or_else(|| Fault::argument("continuation-token", token, message))
    }
}

impl Token {
    fn text(&self) -> String {
        let [name, text] = TOKENS;
        let kind = if self.is_text { text } else { name };
        format!("{kind}{}", hex(self.name.as_bytes()))
    }
}

impl Page {
    /// Lists the page. Blocks.
    pub(crate) fn of(bucket: &Bucket, asked: &Asked) -> Result<Self> {
        let mut page = Self::default();
        if asked.max == 0 {
            return Ok(page);
        }
        let mut walk = KeyWalk::new(bucket, &asked.prefix, &asked.begin())?;
        let mut last = String::new();
        while let Some(found) = walk.next()? {
            if page.objects.len() + page.prefixes.len() == asked.max {
                let (name, is_text) = (last, false);
                page.next = Some(Token { name, is_text });
                return Ok(page);
            }
            match asked.common(&found.key).map(str::to_owned) {
                None => {
                    last.clone_from(&found.key);
                    let changed = bucket.changed(&found.object)?;
                    page.objects.push((found.key, found.object, changed));
                }
                Some(prefix) => {
                    if let Some(behind) = behind(&prefix) {
                        walk.seek(&behind)?;
                    }
                    last.clone_from(&prefix);
                    page.prefixes.push(prefix);
                }
            }
        }
        let name = walk.tired().map(str::to_owned);
        page.next = name.map(|name| Token {
            name,
            is_text: true,
        });
        Ok(page)
    }

    /// The answer to the client.
    pub(crate) fn answer(&self, name: &str, asked: &Asked) -> Answer {
        let mut xml = Xml::new("ListBucketResult");
        xml.leaf("Name", name);
        xml.leaf("Prefix", asked.shown(&asked.prefix));
        if let Some(delimiter) = &asked.delimiter {
            xml.leaf("Delimiter", asked.shown(delimiter));
        }
        xml.leaf("MaxKeys", asked.max.to_string());
        if asked.is_encoded {
            xml.leaf("EncodingType", "url");
        }
        let (start, token) = &asked.told;
        if asked.is_second {
            let count = self.objects.len() + self.prefixes.len();
            xml.leaf("KeyCount", count.to_string());
            if let Some(start) = start {
                xml.leaf("StartAfter", asked.shown(start));
            }
            if let Some(token) = token {
                xml.leaf("ContinuationToken", token);
            }
        } else {
            xml.leaf("Marker", asked.shown(start.as_deref().unwrap_or_default()));
        }
        xml.leaf("IsTruncated", self.next.is_some().to_string());
        match &self.next {
            Some(next) if asked.is_second => xml.leaf("NextContinuationToken", next.text()),
            Some(next) => xml.leaf("NextMarker", asked.shown(&next.name)),
            None => {}
        }
        for (key, object, changed) in &self.objects {
            xml.element("Contents", |xml| {
                xml.leaf("Key", asked.shown(key));
                xml.leaf("LastModified", changed.file.strftime(TIME).to_string());
                xml.leaf("ETag", object.etag());
                xml.leaf("Size", object.content.size.to_string());
                xml.leaf("StorageClass", "STANDARD");
                if asked.with_owner {
                    xml.element("Owner", owner);
                }
            });
        }
        for prefix in &self.prefixes {
            xml.element("CommonPrefixes", |xml| {
                xml.leaf("Prefix", asked.shown(prefix))
            });
        }
        xml.answer(StatusCode::OK)
    }
}

fn owner(xml: &mut Xml) {
    xml.leaf("ID", "store");
    xml.leaf("DisplayName", "store");
}

/// The list of all readable buckets.
pub(crate) fn buckets<'n>(namespaces: impl Iterator<Item = &'n Namespace>) -> Answer {
    let mut xml = Xml::new("ListAllMyBucketsResult");
    xml.element("Owner", owner);
    // The creation time of a namespace is unknown, but clients require one.
    let time = Timestamp::UNIX_EPOCH.strftime(TIME).to_string();
    xml.element("Buckets", |xml| {
        for namespace in namespaces {
            xml.element("Bucket", |xml| {
                xml.leaf("Name", route::bucket(namespace));
                xml.leaf("CreationDate", &time);
            });
        }
    });
    xml.answer(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Outcome<Asked> {
        Asked::parse(&text::pairs(query))
    }

    #[test]
    fn a_page_begins_behind_what_was_told() {
        let begin = |query: &str| String::from_utf8(asked(query).unwrap().begin()).unwrap();
        assert_eq!(begin(""), "");
        assert_eq!(begin("prefix=b&marker=a"), "b");
        assert_eq!(begin("prefix=b&marker=bc/d"), "bc/d\0");
        assert_eq!(begin("prefix=b&marker=bc/d&delimiter=/"), "bc0");
        assert_eq!(begin("marker=bc/&delimiter=/"), "bc0");
        assert_eq!(begin("list-type=2&start-after=b&delimiter=/"), "b\0");
        assert_eq!(
            begin("list-type=2&start-after=c&continuation-token=k622f64&delimiter=/"),
            "b0"
        );
        assert_eq!(
            begin("list-type=2&continuation-token=t622f64&delimiter=/"),
            "b/d\0"
        );
    }

    #[test]
    fn what_no_listing_can_mean_is_refused() {
        for bad in [
            "list-type=1",
            "max-keys=x",
            "max-keys=-1",
            "max-keys=2147483648",
            "encoding-type=xml",
            "list-type=2&continuation-token=",
            "list-type=2&continuation-token=k6",
            "list-type=2&continuation-token=k6G",
            "list-type=2&continuation-token=kff",
            "list-type=2&continuation-token=x62",
            "list-type=2&continuation-token=%C3%A9",
        ] {
            let code = asked(bad).map_err(|fault| fault.code);
            assert_eq!(code, Err("InvalidArgument"), "{bad}");
        }
        assert_eq!(asked("max-keys=5000").unwrap().max, 1000);
        assert_eq!(asked("max-keys=0").unwrap().max, 0);
    }
}
