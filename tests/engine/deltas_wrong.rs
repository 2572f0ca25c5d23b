//! Deltas that cannot be decoded: all readers name the same cause.

use std::sync::Arc;

use store::check::ReadData;
use store::format::{Change, PackHeader, pack_key};
use store::read::Reader;
use store::remote::Prune;
use store::replicate::RefStatus;
use store::{ChunkId, Error, ErrorKind, GetRequest, PackId, Unwatched, cat, get};

use crate::collect::{eager, run};
use crate::damaged::verify_target;
use crate::deltas::REF;
use crate::replicate::{empty, latest};
use crate::stores::{noise, spec};
use crate::strange::{commit, file, learn, upload};
use crate::world::World;

/// The errors of all kinds of readers for the newest version of a ref.
fn errors(world: &World, remote: &Arc<dyn Prune>, id: &ChunkId) -> Vec<Error> {
    let store = world.open(remote.clone()).unwrap();
    let there = empty(world);
    let report = crate::replicate::run(world, remote, &there, &latest(&[REF])).unwrap();
    let failed = report.refs.into_iter().map(|one| match one.status {
        RefStatus::Failed(error) => error,
        other => panic!("{other:?}"),
    });
    let mut all = vec![
        get(
            &store,
            &GetRequest::new(spec(REF), world.tree("out")),
            &Unwatched,
        )
        .unwrap_err(),
        cat(&store, &spec(REF), &(0..u64::MAX), &mut |_| Ok(())).unwrap_err(),
        Reader::new(&store).unwrap().meta_chunk(id).unwrap_err(),
    ];
    all.extend(failed);
    assert_eq!(all.len(), 4);
    all
}

#[test]
fn bases_of_too_many_bytes_are_refused_by_who_verifies_and_by_who_reads() {
    let world = World::new();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let base = noise(1, 4 << 20);
    let mut bytes = base[..5000].to_vec();
    bytes[7] ^= 1;
    let (added, _) = upload(&store, &[(&base, &[])]);
    let (delta, pack) = upload(&store, &[(&bytes, &[base.as_slice(); 5])]);
    commit(&world, &remote, &[learn(), added, delta, file(REF, &bytes)]);
    for error in errors(&world, &remote, &ChunkId::of(&bytes)) {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        let message = error.to_string();
        assert!(message.contains("at most 16777216 bytes"), "{message}");
        assert!(message.contains(&pack_key(pack)), "{message}");
    }
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    let objects: Vec<&str> = report
        .findings
        .iter()
        .map(|one| one.object.as_str())
        .collect();
    assert_eq!(objects, [pack_key(pack).as_str()], "{report:#?}");
    assert_eq!(report.hits.len(), 1);
}

/// A store with a delta whose base is damaged but still decodes. The pack also has unused chunks.
fn damaged_base(world: &World) -> (Arc<dyn Prune>, PackId, PackId, ChunkId) {
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let (base, mut bytes) = (noise(1, 50_000), noise(1, 50_000));
    bytes[7] ^= 1;
    let (added, pack) = upload(&store, &[(&base, &[])]);
    let garbage = noise(3, 50_000);
    let (delta, own) = upload(&store, &[(&bytes, &[&base]), (&garbage, &[])]);
    let changes: Vec<Change> = vec![learn(), added, delta, file(REF, &bytes)];
    commit(world, &remote, &changes);
    let key = pack_key(pack);
    let mut damaged = remote.get(&key).unwrap().to_vec();
    damaged[PackHeader::LEN as usize + 1000] ^= 1;
    remote.put(&key, damaged.into()).unwrap();
    (remote, pack, own, ChunkId::of(&bytes))
}

#[test]
fn a_base_that_decodes_to_other_bytes_is_blamed_by_everybody_and_its_delta_is_not() {
    let world = World::new();
    let (remote, pack, own, id) = damaged_base(&world);
    let mut all = errors(&world, &remote, &id);
    all.push(run(&world, &remote, &eager()).unwrap_err());
    for (at, error) in all.into_iter().enumerate() {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error:?}");
        let message = error.to_string();
        let frame = format!("{}: frame at offset {}", pack_key(own), PackHeader::LEN);
        let [base, needs] = [&pack_key(pack), &frame].map(|word| message.find(word));
        assert!(base.is_some() && needs.is_some(), "{at}: {message}");
    }
}
