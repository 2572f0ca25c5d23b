//! The parsers of the Hub door, for fuzzing only.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a broken word ends the run"
)]

use crate::serve::hub::listing::Listing;
use crate::serve::hub::look::{named_paths, place};
use crate::serve::hub::route::{Call, Id, Route, endpoint};
use crate::serve::hub::stream::in_pieces;
use crate::serve::hub::uploads::announced;
use crate::serve::hub::write::{Preupload, parse};
use crate::serve::text;

/// The lines of a commit mean the same however the body is split.
pub fn commit(data: &[u8]) -> bool {
    let (piece, body) = data.split_first().unwrap_or((&1, data));
    let whole = in_pieces(body, body.len());
    let pieces = in_pieces(body, usize::from(*piece));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole, pieces);
            true
        }
        (whole, pieces) => {
            assert_eq!(whole.is_ok(), pieces.is_ok());
            false
        }
    }
}

/// Accepted repo ids are those that a Hub would accept, and the path of a tree has no slash at its end.
pub fn path(data: &[u8]) -> bool {
    let Some(segments) = std::str::from_utf8(data).ok().and_then(text::segments) else {
        return false;
    };
    let (_, rest) = endpoint(&segments);
    let Some(Route::Repo(_, id, call)) = Route::parse(rest) else {
        return false;
    };
    assert_eq!(Id::parse(id.as_str()), Some(id.clone()));
    assert!(!id.as_str().contains("..") && id.as_str().split('/').count() <= 2);
    if let Call::Tree { path, .. } = call {
        assert!(!path.ends_with('/'));
    }
    true
}

/// An accepted listing is the same after it is written and read, and names nothing outside of a tree.
pub fn listing(data: &[u8]) -> bool {
    let of_page = || {
        let mut listing = Listing::default();
        listing.add_page(data).ok()?;
        listing.check().ok().map(|()| listing)
    };
    let mut accepted = false;
    for listing in [Listing::parse(data), of_page()].into_iter().flatten() {
        accepted = true;
        assert_eq!(
            Listing::parse(&listing.text().unwrap()),
            Some(listing.clone())
        );
        let mut paths = listing.files().keys();
        assert!(paths.all(|path| text::is_inside(path) && !path.is_empty()));
    }
    accepted
}

/// Bodies of requests, and cursors of listings. The oid of an announced file is a hash, and a cursor is a path in hex.
pub fn body(data: &[u8]) -> bool {
    let objects = announced(data);
    let mut oids = objects.iter().flatten().map(|(oid, _)| oid.as_bytes());
    assert!(oids.all(|oid| oid.len() == 64 && oid.iter().all(u8::is_ascii_hexdigit)));
    let planned = parse::<Preupload>(data).ok();
    for file in planned.iter().flat_map(|planned| &planned.files) {
        // Must not panic; either answer is right.
        let _large = [true, false].map(|is_xet_only| file.goes_by_lfs(is_xet_only));
    }
    let cursor = std::str::from_utf8(data).ok();
    let path = cursor.and_then(place);
    if let (Some(cursor), Some(path)) = (cursor, &path) {
        assert_eq!(text::hex(path.as_bytes()), cursor);
    }
    let is_json = objects.is_some() || planned.is_some();
    is_json || path.is_some() || named_paths(data).is_some_and(|(paths, _)| !paths.is_empty())
}
