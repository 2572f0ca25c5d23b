//! The listing of a revision of the upstream (pure): from its API, and from the file in which clients' caches keep it.
//!
//! Only the listing is trusted: it has the files, their sizes, and the hashes that verify them.

use std::collections::BTreeMap;

use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use store::{Error, Result};

use crate::serve::text::{is_hex, is_inside};

/// Maximum number of files of a revision.
pub(super) const FILES_MAX: usize = 1_000_000;
/// Maximum bytes of a name in a path, and of a path.
const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 3000;
const FORMAT: u32 = 1;

/// The files of a revision by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing(BTreeMap<String, Listed>);

/// One file of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) size: u64,
    /// The git object id of the file, or of the LFS pointer if it is large.
    #[serde(rename = "blob_id")]
    oid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lfs_sha256: Option<String>,
}

/// The file format of clients since 1.22.
#[derive(Deserialize)]
struct Document {
    format_version: u32,
    files: BTreeMap<String, Listed>,
}

/// The same, to write.
#[derive(Serialize)]
struct Written<'l> {
    format_version: u32,
    files: &'l BTreeMap<String, Listed>,
}

/// An entry of a page of the API.
#[derive(Deserialize)]
struct Row {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    path: String,
    size: Option<u64>,
    oid: Option<String>,
    lfs: Option<Pointer>,
}

#[derive(Deserialize)]
struct Pointer {
    oid: Option<String>,
}

impl Listed {
    /// The hash of the bytes: SHA-256 or git's.
    pub(super) fn name(&self) -> &str {
        self.lfs_sha256.as_ref().unwrap_or(&self.oid)
    }
}

impl Listing {
    /// The files by path, by value: there may be very many.
    pub(super) fn into_files(self) -> BTreeMap<String, Listed> {
        self.0
    }

    pub(super) fn files(&self) -> &BTreeMap<String, Listed> {
        &self.0
    }

    /// Adds the entries of one page, given as JSON.
    ///
    /// # Errors
    /// If a file has no hash, or a path that no tree can hold, or there are too many.
    pub(super) fn add_page(&mut self, page: &[u8]) -> Result<()> {
        let mut page = serde_json::Deserializer::from_slice(page);
        Page(self)
            .deserialize(&mut page)
            .and_then(|()| page.end())
            .map_err(|source| Error::invalid(source.to_string()))
    }

    fn add(&mut self, row: Row) -> std::result::Result<(), String> {
        if row.kind != "file" {
            return Ok(());
        }
        let path = row.path.clone();
        let listed = row.listed().filter(|_| is_path(&path));
        let listed =
            listed.ok_or_else(|| format!("{path:?}: no size and hash, or a strange name"))?;
        self.0.insert(path, listed);
        match self.0.len() > FILES_MAX {
            true => Err(format!("more than {FILES_MAX} files")),
            false => Ok(()),
        }
    }

    /// Checks that no path is both a file and a directory.
    ///
    /// # Errors
    /// If there is such a path.
    pub(super) fn check(&self) -> Result<()> {
        let is_there = |(at, _): (usize, &str), path: &str| {
            path.get(..at).is_some_and(|dir| self.0.contains_key(dir))
        };
        let clash = self
            .0
            .keys()
            .find(|path| path.match_indices('/').any(|place| is_there(place, path)));
        match clash {
            Some(path) => Err(Error::invalid(format!("{path:?} is below a file"))),
            None => Ok(()),
        }
    }

    /// Encodes the listing as a file of a cache.
    pub(super) fn text(&self) -> Result<Vec<u8>> {
        let document = Written {
            format_version: FORMAT,
            files: &self.0,
        };
        serde_json::to_vec(&document)
            .map_err(|source| Error::invalid("a listing as JSON").because(source))
    }

    /// Parses such a file; `None` if it is invalid.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(text).ok()?;
        let is_good = |(path, listed): (&String, &Listed)| is_path(path) && listed.is_good();
        let is_good = document.format_version == FORMAT && document.files.iter().all(is_good);
        let listing = Self(document.files);
        (is_good && listing.check().is_ok()).then_some(listing)
    }
}

impl Listed {
    fn is_good(&self) -> bool {
        let is_large = self.lfs_sha256.is_some();
        is_hex(self.name(), if is_large { 64 } else { 40 })
    }
}

impl Row {
    fn listed(self) -> Option<Listed> {
        let lfs_sha256 = match self.lfs {
            Some(pointer) => Some(pointer.oid?),
            None => None,
        };
        let listed = Listed {
            size: self.size?,
            oid: self.oid?,
            lfs_sha256,
        };
        listed.is_good().then_some(listed)
    }
}

/// Reads a page row by row into a listing, since a page may have very many.
struct Page<'l>(&'l mut Listing);

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, page: D) -> std::result::Result<(), D::Error> {
        page.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ();

    fn expecting(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        text.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> std::result::Result<(), A::Error> {
        while let Some(row) = rows.next_element()? {
            self.0.add(row).map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}

fn is_path(path: &str) -> bool {
    let is_name = |name: &str| name.len() <= NAME_BYTES_MAX && !name.contains('\0');
    !path.is_empty()
        && path.len() <= PATH_BYTES_MAX
        && is_inside(path)
        && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn page() -> Value {
        let (git, sha256) = ("a".repeat(40), "b".repeat(64));
        json!([
            {"type": "directory", "path": "sub", "oid": "x", "size": 0},
            {"type": "file", "path": "sub/a b", "oid": git, "size": 5},
            {"type": "file", "path": "x.bin", "oid": git, "size": 7, "lfs": {"oid": sha256, "size": 7, "pointerSize": 130}},
        ])
    }

    fn add(listing: &mut Listing, page: &Value) -> Result<()> {
        listing.add_page(page.to_string().as_bytes())
    }

    #[test]
    fn what_the_api_says_is_kept_as_caches_keep_it() {
        let mut listing = Listing::default();
        add(&mut listing, &page()).unwrap();
        let names: Vec<_> = listing.files().values().map(Listed::name).collect();
        assert_eq!(names, ["a".repeat(40), "b".repeat(64)]);
        let text = listing.text().unwrap();
        assert_eq!(Listing::parse(&text), Some(listing));
        let expected = format!(
            r#"{{"format_version":1,"files":{{"sub/a b":{{"size":5,"blob_id":"{}"}},"#,
            "a".repeat(40)
        );
        assert!(text.starts_with(expected.as_bytes()));
    }

    #[test]
    fn files_without_a_hash_and_paths_that_lead_elsewhere_are_refused() {
        for (name, value) in [
            ("path", json!("../x")),
            ("path", json!("")),
            ("path", json!("a".repeat(256))),
            ("oid", json!("abc")),
            ("oid", json!(1)),
            ("size", json!(-1)),
            ("lfs", json!({})),
            ("lfs", json!({"oid": "a".repeat(40)})),
        ] {
            let mut page = page();
            page[1][name] = value.clone();
            let found = add(&mut Listing::default(), &page);
            assert!(found.is_err(), "{name}: {value}");
        }
        assert!(add(&mut Listing::default(), &json!({})).is_err());
        assert!(Listing::default().add_page(b"[] []").is_err());
        let mut clash = page();
        clash[2]["path"] = json!("sub");
        let mut listing = Listing::default();
        add(&mut listing, &clash).unwrap();
        assert!(listing.check().is_err());
        assert_eq!(Listing::parse(&listing.text().unwrap()), None);
        assert_eq!(Listing::parse(b"{}"), None);
    }
}
