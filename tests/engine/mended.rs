//! Damage that is mended under a program that goes on.

use store::ErrorKind;
use store::format::{Node, pack_key};
use store::read::Reader;

use crate::damaged::{Damaged, REF, flip};
use crate::stores::{noise, spec};

/// A server reads for weeks with one reader.
#[test]
fn what_was_mended_is_read_again_by_the_same_reader() {
    let damaged = Damaged::new();
    let reader = Reader::new(&damaged.store).unwrap();
    let found = reader.resolve(&spec(&format!("{REF}:sub/small"))).unwrap();
    let Node::File { content, .. } = found.node else {
        panic!("a file");
    };
    let location = damaged.first_chunk("sub/small");
    let path = damaged.object(&pack_key(location.pack));
    let at = u64::from(location.frame_offset + location.stored_len / 2);
    flip(&path, at);
    let error = reader.meta(&content).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    flip(&path, at);
    assert_eq!(reader.meta(&content).unwrap(), noise(3, 1000));
}
