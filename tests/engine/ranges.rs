//! Reading the bytes of one file in order: any range, near and far, with any number of threads, and with disturbances.

use std::fs;
use std::ops::Range;
use std::sync::Arc;

use store::format::{Node, RefSpec, pack_key};
use store::read::Reader;
use store::remote::Prune;
use store::{Error, ErrorKind, Host, Result, Store, cat, refs};
use support::Random;

use crate::collect::{eager, run};
use crate::stores::{name, noise, text};
use crate::world::World;

const REF: &str = "project/a/file";
const DROPPED: &str = "project/a/dropped";
const BLOCK: usize = 1 << 20;

/// Noise, text, zeros, and a repetition of earlier bytes.
fn bytes() -> Vec<u8> {
    let (noise, text) = (noise(1, 9 * BLOCK), text(2, 8 * BLOCK));
    let zeros = vec![0; 9 * BLOCK + 77];
    [
        &noise[..],
        &text,
        &zeros,
        &noise[BLOCK..3 * BLOCK],
        &text[..99],
    ]
    .concat()
}

fn read(store: &Store, range: &Range<u64>) -> Result<Vec<u8>> {
    let spec: RefSpec = format!("{REF}:large").parse().unwrap();
    let mut out = Vec::new();
    let count = cat(store, &spec, range, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    assert_eq!(count, out.len() as u64);
    Ok(out)
}

fn open(world: &World, remote: &Arc<dyn Prune>, threads: usize, memory_bytes: u64) -> Store {
    let host = Host {
        threads,
        memory_bytes,
        ..world.host()
    };
    world.open_as(remote.clone(), host).unwrap()
}

#[test]
fn numbered_stretches_are_the_file_near_and_far() {
    let mut world = World::new();
    let bytes = bytes();
    support::trees::write(&world.tree("in/large"), &bytes);
    world.prepare("in", REF);
    for remote in [world.memory(), world.directory("near")] {
        let store = open(&world, &remote, 2, 64 << 20);
        let reader = Reader::new(&store).unwrap();
        let found = reader.resolve(&format!("{REF}:large").parse().unwrap());
        let Node::File { content, .. } = found.unwrap().node else {
            panic!("not a file");
        };
        for len in [1 << 16, 300_000, 1 << 20, 64 << 20] {
            let mut seen = 0;
            for number in 0..=content.size / len {
                let (start, stretch) = reader.stretch(&content, number, len).unwrap();
                assert!(start >= number * len, "{number} of {len}");
                if !stretch.is_empty() {
                    assert!(start < (number + 1) * len, "{number} of {len}");
                    let start = usize::try_from(start).unwrap();
                    assert_eq!(start, seen, "{number} of {len}");
                    seen += stretch.len();
                    assert!(stretch == bytes[start..seen], "{number} of {len}");
                }
            }
            assert_eq!(seen, bytes.len(), "{len}");
        }
        let behind = reader.stretch(&content, 1 << 30, 1 << 20).unwrap();
        assert_eq!(behind, (content.size, Vec::new()));
    }
}

#[test]
fn any_range_comes_in_order_near_and_far_on_any_number_of_threads() {
    let mut world = World::new();
    let bytes = bytes();
    support::trees::write(&world.tree("in/large"), &bytes);
    world.prepare("in", REF);
    let mut random = Random::new(7);
    for remote in [world.memory(), world.directory("near")] {
        for (threads, memory_bytes) in [(1, 1 << 20), (2, 128 << 20), (7, 40 << 20)] {
            let store = open(&world, &remote, threads, memory_bytes);
            assert!(read(&store, &(0..u64::MAX)).unwrap() == bytes);
            for _ in 0..5 {
                let mut below = |most: usize| usize::try_from(random.below(most as u64)).unwrap();
                let start = below(bytes.len());
                let end = start + below(bytes.len() - start + 1);
                let found = read(&store, &(start as u64..end as u64)).unwrap();
                assert!(found == bytes[start..end], "{start}..{end}");
            }
            let end = bytes.len() as u64;
            assert_eq!(read(&store, &(end..end)).unwrap(), b"");
            assert_eq!(
                read(&store, &(end - 1..end + 9)).unwrap(),
                bytes[bytes.len() - 1..]
            );
        }
    }
}

/// A collector moves packs while a file is read; the rest is read from their new places.
#[test]
fn packs_that_are_rewritten_meanwhile_are_read_from_elsewhere() {
    let mut world = World::new();
    let blocks: Vec<Vec<u8>> = (0..40).map(|seed| noise(seed, BLOCK)).collect();
    let kept: Vec<u8> = blocks.iter().step_by(2).flatten().copied().collect();
    support::trees::write(&world.tree("both/large"), &blocks.concat());
    support::trees::write(&world.tree("kept/large"), &kept);
    world.prepare("both", DROPPED);
    world.prepare("kept", REF);
    world.change(|store| drop(refs::drop_versions(store, &name(DROPPED), None).unwrap()));
    let remote = world.memory();
    let store = open(&world, &remote, 2, 24 << 20);
    let mut out = Vec::new();
    let mut copied = None;
    cat(
        &store,
        &format!("{REF}:large").parse().unwrap(),
        &(0..u64::MAX),
        &mut |bytes| {
            out.extend_from_slice(bytes);
            if copied.is_none() {
                copied = Some(run(&world, &remote, &eager()).unwrap().copied_bytes);
            }
            Ok(())
        },
    )
    .unwrap();
    assert!(copied > Some(10 << 20), "{copied:?}");
    assert!(out == kept);
}

/// Nothing after damage is passed on, and an error of the consumer ends the read.
#[test]
fn damage_and_a_refusal_end_it_there() {
    let mut world = World::new();
    let bytes = noise(1, 30 * BLOCK);
    support::trees::write(&world.tree("in/large"), &bytes);
    world.prepare("in", REF);
    let remote = world.memory();
    let spec: RefSpec = format!("{REF}:large").parse().unwrap();
    let store = open(&world, &remote, 2, 48 << 20);
    let mut taken = 0;
    let error = cat(&store, &spec, &(0..u64::MAX), &mut |bytes| {
        taken += bytes.len();
        match taken > 6 * BLOCK {
            true => Err(Error::unavailable("the pipe is closed")),
            false => Ok(()),
        }
    });
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("the pipe is closed")
    );
    assert!(taken < 13 * BLOCK, "{taken}");

    damage(&store, remote.as_ref(), 20 * BLOCK as u64);
    let mut out = Vec::new();
    let error = cat(&store, &spec, &(0..u64::MAX), &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(bytes.starts_with(&out), "{}", out.len());
    assert!(
        (15 * BLOCK..=20 * BLOCK).contains(&out.len()),
        "{}",
        out.len()
    );
}

/// A missing mount is not damage: nobody should repair a store that is unreachable.
#[test]
fn a_store_that_goes_away_meanwhile_is_away_and_not_damaged() {
    let mut world = World::new();
    support::trees::write(&world.tree("in/large"), &noise(1, 30 * BLOCK));
    world.prepare("in", REF);
    let remote = world.directory("near");
    let spec: RefSpec = format!("{REF}:large").parse().unwrap();
    let store = open(&world, &remote, 2, 24 << 20);
    let error = cat(&store, &spec, &(0..u64::MAX), &mut |_| {
        let place = world.tree("near");
        if place.exists() {
            fs::rename(place, world.tree("gone")).unwrap();
        }
        Ok(())
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

/// Flips a bit in the frame that contains the byte at `place`.
fn damage(store: &Store, remote: &dyn Prune, place: u64) {
    let reader = Reader::new(store).unwrap();
    let found = reader.resolve(&format!("{REF}:large").parse().unwrap());
    let Node::File { content, .. } = found.unwrap().node else {
        panic!("a file");
    };
    let mut at = None;
    let mut each = |id, _, _| {
        at = Some(reader.locate(&id)?);
        Ok(())
    };
    reader
        .chunks_in(&content, &(place..place + 1), &mut each)
        .unwrap();
    let at = at.unwrap();
    let key = pack_key(at.pack);
    let mut bytes = remote.get(&key).unwrap().to_vec();
    bytes[at.frame_offset as usize + at.stored_len as usize / 2] ^= 1;
    remote.put(&key, bytes.into()).unwrap();
}

/// What needs no wait comes at once: small contents out of a frame that was read, near and far, and nothing else.
#[test]
fn small_contents_are_at_hand_once_their_frame_was_read() {
    let mut world = World::new();
    let small = noise(3, 2000);
    support::trees::write(&world.tree("in/small"), &small);
    support::trees::write(&world.tree("in/smaller"), &small[..999]);
    support::trees::write(&world.tree("in/empty"), b"");
    support::trees::write(&world.tree("in/large"), &bytes());
    world.prepare("in", REF);
    for remote in [world.memory(), world.directory("near")] {
        let store = open(&world, &remote, 1, 64 << 20);
        let reader = Reader::new(&store).unwrap();
        let content = |path: &str| {
            let found = reader.resolve(&format!("{REF}:{path}").parse().unwrap());
            match found.unwrap().node {
                Node::File { content, .. } => content,
                _ => panic!("not a file"),
            }
        };
        assert_eq!(reader.at_hand(&content("small")), None);
        reader.meta_chunk(&content("small").root).unwrap();
        assert_eq!(reader.at_hand(&content("small")), Some(small.clone()));
        assert_eq!(
            reader.at_hand(&content("smaller")),
            Some(small[..999].to_vec())
        );
        assert_eq!(reader.at_hand(&content("empty")), None);
        assert_eq!(reader.at_hand(&content("large")), None);
        // The same chunk, said to be longer.
        let wrong = store::Content {
            size: 2001,
            ..content("small")
        };
        assert_eq!(reader.at_hand(&wrong), None);
    }
}
