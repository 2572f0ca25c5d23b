//! Deltas: they are made automatically, decode correctly, keep their bases alive, and take the bases along when they
//! are copied.

use std::fs;
use std::sync::Arc;

use store::check::{ReadData, RepairRequest, repair};
use store::format::{pack_key, segment_key};
use store::index::{Index, Location};
use store::read::Reader;
use store::remote::Prune;
use store::{ChunkId, DeltaBase, ErrorKind, PutReport, Store, Unwatched, put, refs};

use crate::collect::{eager, run};
use crate::damaged::{hit_paths, verify_target};
use crate::replicate::{all, bring, empty, latest};
use crate::stores::{name, noise, request, spec};
use crate::world::World;

pub(crate) const REF: &str = "project/a/model";
pub(crate) const OTHER: &str = "project/a/other";
const BASE: &str = "project/a/base";
/// Numbers in each file: a megabyte in bf16.
pub(crate) const NUMBERS: usize = 1 << 19;

/// Normally distributed weights, as in trained models, after this many steps of further training.
pub(crate) fn weights(steps: u64, count: usize) -> Vec<f32> {
    let mut all = vec![0.0; count];
    for step in 0..=steps {
        let mut seed = step * 1000 + 1;
        let mut uniform = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(u16::try_from(seed >> 48).unwrap()) / 65_536.0 - 0.5
        };
        let by = if step == 0 { 0.02 } else { 0.000_1 };
        for weight in &mut all {
            *weight += (0..4).map(|_| uniform()).sum::<f32>() * by;
        }
    }
    all
}

pub(crate) fn halved(weights: &[f32]) -> Vec<u8> {
    let bytes = weights.iter().map(|weight| weight.to_le_bytes());
    bytes.flat_map(|[_, _, c, d]| [c, d]).collect()
}

/// A file of these tensors, which are named by number.
pub(crate) fn safetensors(tensors: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut at) = (serde_json::json!({}), 0);
    for (number, bytes) in tensors {
        let end = at + bytes.len();
        header[format!("layer.{number}")] = serde_json::json!({
            "dtype": "BF16", "shape": [bytes.len() / 2], "data_offsets": [at, end]
        });
        at = end;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    tensors.iter().for_each(|(_, bytes)| file.extend(bytes));
    file
}

/// A model after this many steps, in four tensors.
pub(crate) fn model(steps: u64) -> Vec<(usize, Vec<u8>)> {
    let bytes = halved(&weights(steps, NUMBERS));
    bytes
        .chunks(NUMBERS * 2 / 4)
        .map(<[u8]>::to_vec)
        .enumerate()
        .collect()
}

/// Makes the tree `name` of one file.
pub(crate) fn tree(world: &World, name: &str, file: &[u8]) {
    fs::create_dir_all(world.tree(name)).unwrap();
    fs::write(world.tree(name).join("model.safetensors"), file).unwrap();
}

fn put_from(world: &World, remote: &Arc<dyn Prune>, tree: &str, base: DeltaBase) -> PutReport {
    let mut request = request(&world.tree(tree), REF);
    tree.clone_into(&mut request.message);
    request.delta_base = base;
    put(&world.open(remote.clone()).unwrap(), &request, &Unwatched).unwrap()
}

/// A store with a model and a further trained one.
pub(crate) fn trained() -> (World, Arc<dyn Prune>) {
    let world = World::new();
    let remote = world.memory();
    for steps in 0..2 {
        let name = format!("steps-{steps}");
        tree(&world, &name, &safetensors(&model(steps)));
        world.put(remote.clone(), &name, REF).unwrap();
    }
    (world, remote)
}

fn index(world: &World, remote: &Arc<dyn Prune>) -> Index {
    world.open(remote.clone()).unwrap().view().unwrap().index
}

/// The chunks of a version's only file, and their locations.
fn places(world: &World, remote: &Arc<dyn Prune>, version: &str) -> Vec<(ChunkId, Location)> {
    places_in(&world.open(remote.clone()).unwrap(), version)
}

fn places_in(store: &Store, version: &str) -> Vec<(ChunkId, Location)> {
    let reader = Reader::new(store).unwrap();
    let found = reader.resolve(&spec(&format!("{version}:model.safetensors")));
    let store::format::Node::File { content, .. } = found.unwrap().node else {
        panic!("a file");
    };
    let mut places = Vec::new();
    let mut each = |id, _| {
        places.push((id, reader.locate(&id)?));
        Ok(())
    };
    reader.chunks(&content, &mut each).unwrap();
    places
}

fn deltas(world: &World, remote: &Arc<dyn Prune>, version: &str) -> usize {
    count_deltas(&world.open(remote.clone()).unwrap(), version)
}

/// The number of chunks of a version's only file that are in deltas.
pub(crate) fn count_deltas(store: &Store, version: &str) -> usize {
    let places = places_in(store, version);
    places.iter().filter(|(_, at)| at.is_delta).count()
}

fn bases(index: &Index, id: &ChunkId) -> Vec<ChunkId> {
    let at = index.position(id).unwrap().unwrap();
    index.bases(at, &index.at(at).unwrap().1).unwrap()
}

pub(crate) fn is_clean(world: &World, remote: &Arc<dyn Prune>) {
    let store = world.open(remote.clone()).unwrap();
    for read in [ReadData::Nothing, ReadData::Stored, ReadData::Everything] {
        let report = verify_target(&store, read, None).unwrap();
        assert!(report.is_clean(), "{read:?}: {report:#?}");
    }
}

#[test]
fn what_was_trained_further_is_stored_as_the_difference() {
    let (world, remote) = trained();
    let state = world.open(remote.clone()).unwrap().state().unwrap();
    assert_eq!(state.features.incompatible, ["delta-frames"]);
    assert_eq!(deltas(&world, &remote, &format!("{REF}@1")), 0);
    let (all, found) = (
        places(&world, &remote, REF).len(),
        deltas(&world, &remote, REF),
    );
    assert!(found + 1 >= all && found >= 4, "{found} of {all}");
    assert_eq!(world.check(remote.clone(), "deltas").len(), 2);
    is_clean(&world, &remote);
    // A third version and a sibling: their bases are plain as well.
    tree(&world, "steps-2", &safetensors(&model(2)));
    let report = world.put(remote.clone(), "steps-2", REF).unwrap();
    assert!(
        report.stored_bytes * 100 < report.new_bytes * 40,
        "{report:?}"
    );
    tree(&world, "sibling", &safetensors(&model(3)));
    let report = world.put(remote.clone(), "sibling", OTHER).unwrap();
    assert!(
        report.stored_bytes * 100 < report.new_bytes * 45,
        "{report:?}"
    );
    let index = index(&world, &remote);
    for version in [format!("{REF}@3"), OTHER.to_owned()] {
        for (id, _) in places(&world, &remote, &version) {
            for base in bases(&index, &id) {
                assert!(index.find_plain(&base).unwrap().is_some(), "{version}");
            }
        }
    }
    assert_eq!(world.check(remote.clone(), "more deltas").len(), 4);
    is_clean(&world, &remote);
}

#[test]
fn a_base_is_found_by_the_name_of_a_tensor_or_by_its_place_and_where_one_says() {
    let (world, remote) = trained();
    let mut turned = model(2);
    turned.reverse();
    tree(&world, "turned", &safetensors(&turned));
    let report = put_from(&world, &remote, "turned", DeltaBase::Auto);
    assert!(
        report.stored_bytes * 100 < report.new_bytes * 40,
        "{report:?}"
    );
    // Numbers in files of an unknown format, which are cut by content: chunks have no counterparts, bytes have.
    for steps in 0..2 {
        let plain = [
            noise(7, 30_001),
            halved(&weights(steps, NUMBERS)),
            noise(8, 99),
        ]
        .concat();
        tree(&world, &format!("raw-{steps}"), &plain);
        let report = put_from(
            &world,
            &remote,
            &format!("raw-{steps}"),
            [DeltaBase::None, DeltaBase::Auto][usize::try_from(steps).unwrap()].clone(),
        );
        let share = report.stored_bytes * 100 / report.new_bytes;
        assert_eq!(share < 50, steps == 1, "{share}");
    }
    tree(&world, "again", &safetensors(&model(3)));
    let none = put_from(&world, &remote, "again", DeltaBase::None);
    assert!(none.stored_bytes * 100 > none.new_bytes * 60, "{none:?}");
    assert_eq!(deltas(&world, &remote, REF), 0);
    tree(&world, "from", &safetensors(&model(4)));
    let from = DeltaBase::Version(spec(&format!("{REF}@1")));
    let report = put_from(&world, &remote, "from", from);
    assert!(
        report.stored_bytes * 100 < report.new_bytes * 50,
        "{report:?}"
    );
    let missing = DeltaBase::Version(spec("project/a/nowhere"));
    let mut request = request(&world.tree("from"), REF);
    request.delta_base = missing;
    let error = put(&world.open(remote.clone()).unwrap(), &request, &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    world.check(remote.clone(), "by name and place");
    is_clean(&world, &remote);
}

#[test]
fn a_dropped_version_leaves_the_bases_of_those_that_stay() {
    let (world, remote) = trained();
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), Some(1)).unwrap();
    let before = places(&world, &remote, REF);
    let report = run(&world, &remote, &eager()).unwrap();
    let condemned = report.plan.condemn.iter();
    let data = condemned.filter(|pack| pack.bytes > 10_000);
    assert_eq!(data.count(), 0, "only the tree goes: {:?}", report.plan);
    is_clean(&world, &remote);
    assert_eq!(
        world.check(remote.clone(), "base dropped"),
        [format!("{REF}@2")]
    );
    let after = places(&world, &remote, REF);
    assert!(before.iter().zip(&after).all(|(a, b)| a.0 == b.0));
    assert_eq!(
        deltas(&world, &remote, REF),
        after.iter().filter(|(_, at)| at.is_delta).count()
    );
    // The base is collected together with what needs it.
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    run(&world, &remote, &eager()).unwrap();
    assert_eq!(remote.list("packs").unwrap().len(), 0);
}

#[test]
fn repacking_copies_bases_and_deltas_as_what_they_are() {
    let world = World::new();
    let remote = world.memory();
    for steps in 0..2 {
        let name = format!("steps-{steps}");
        tree(&world, &name, &safetensors(&model(steps)));
        fs::write(world.tree(&name).join("noise"), noise(steps, 1 << 20)).unwrap();
        world.put(remote.clone(), &name, REF).unwrap();
        // The same without the noise; the version with noise is dropped.
        let name = format!("alone-{steps}");
        tree(&world, &name, &safetensors(&model(steps)));
        world.put(remote.clone(), &name, OTHER).unwrap();
    }
    let store = world.open(remote.clone()).unwrap();
    store::refs::drop_versions(&store, &name(REF), None).unwrap();
    store::refs::drop_versions(&store, &name(OTHER), Some(1)).unwrap();
    let found = deltas(&world, &remote, OTHER);
    assert!(found >= 4, "{found}");
    let report = run(&world, &remote, &eager()).unwrap();
    assert!(report.copied_bytes > 1 << 19, "{report:?}");
    assert_eq!(deltas(&world, &remote, OTHER), found);
    is_clean(&world, &remote);
    world.check(remote.clone(), "repacked");
}

#[test]
fn a_damaged_base_is_named_with_the_frame_and_the_paths_that_it_hits() {
    let (world, remote) = trained();
    let index = index(&world, &remote);
    let (id, at) = *places(&world, &remote, REF)
        .iter()
        .find(|(_, at)| at.is_delta)
        .unwrap();
    let base = bases(&index, &id)[0];
    let place = index.find_plain(&base).unwrap().unwrap();
    let key = pack_key(place.pack);
    let whole = remote.get(&key).unwrap();
    let mut bytes = whole.to_vec();
    bytes[place.frame_offset as usize + 5000] ^= 4;
    remote.put(&key, bytes.into()).unwrap();
    let store = world.open(remote.clone()).unwrap();
    let report = verify_target(&store, ReadData::Everything, None).unwrap();
    let objects: Vec<&str> = report
        .findings
        .iter()
        .map(|one| one.object.as_str())
        .collect();
    assert_eq!(objects, [key.as_str()], "the delta's own pack is sound");
    assert_eq!(hit_paths(&report), ["model.safetensors"; 2]);
    let hit = report.hits.iter().find(|hit| hit.version == 2).unwrap();
    let frame = format!("at offset {} of {}", at.frame_offset, pack_key(at.pack));
    assert!(
        hit.what.contains(&frame) && hit.what.contains("the difference to chunk"),
        "{hit:?}"
    );
    let error = world.get(&store, &format!("{REF}@2")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    // Good parts of the base are saved. Damaged parts also lose their deltas until they are put again.
    let request = RepairRequest {
        read_data: true,
        dry_run: false,
        accept_loss: false,
    };
    let repaired = repair(&store, request, &Unwatched).unwrap();
    assert_eq!(repaired.packs_condemned, [place.pack]);
    assert!(
        repaired.chunks_saved > 0 && repaired.chunks_lost > 0,
        "{repaired:#?}"
    );
    let hits: Vec<u64> = repaired.hits.iter().map(|hit| hit.version).collect();
    assert_eq!(hits, [1, 2]);
    let lacking = &repaired.hits[1].what;
    assert!(
        lacking.contains("which no live segment offers in a plain frame"),
        "{lacking}"
    );
    let error = world
        .get(&world.open(remote.clone()).unwrap(), &format!("{REF}@2"))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    world.put(remote.clone(), "steps-0", OTHER).unwrap();
    is_clean(&world, &remote);
    world.check(remote.clone(), "the base was put again");
}

/// A model and two further trained ones, one of which is stored plain. The model was dropped, and is kept as the base
/// of the other one. Returns the key of its pack, too.
fn with_a_held_base() -> (World, Arc<dyn Prune>, String) {
    let world = World::new();
    let remote = world.memory();
    for (steps, target, base) in [
        (0, BASE, DeltaBase::None),
        (1, REF, DeltaBase::Auto),
        (2, OTHER, DeltaBase::None),
    ] {
        let name = format!("steps-{steps}");
        tree(&world, &name, &safetensors(&model(steps)));
        put_as(&world, &remote, &name, target, base);
    }
    assert!(deltas(&world, &remote, REF) >= 2);
    let index = index(&world, &remote);
    let (id, _) = places(&world, &remote, REF)
        .into_iter()
        .find(|(_, at)| at.is_delta)
        .unwrap();
    let base = index.find_plain(&bases(&index, &id)[0]).unwrap().unwrap();
    let store = world.open(remote.clone()).unwrap();
    refs::drop_versions(&store, &name(BASE), None).unwrap();
    (world, remote, pack_key(base.pack))
}

fn is_whole(world: &World, remote: &Arc<dyn Prune>) {
    world.check(remote.clone(), "after it came back");
    is_clean(world, remote);
    run(world, remote, &eager()).unwrap();
    world.check(remote.clone(), "after a collection");
    is_clean(world, remote);
}

#[test]
fn a_base_that_was_lost_comes_back_in_a_plain_frame() {
    for repairs in [false, true] {
        let (world, remote, pack) = with_a_held_base();
        remote.delete(&[pack]).unwrap();
        if repairs {
            mend(&world, &remote);
        }
        let store = world.open(remote.clone()).unwrap();
        assert_eq!(
            world.get(&store, REF).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        // The automatic choice finds a base that is similar.
        put_as(&world, &remote, "steps-0", BASE, DeltaBase::Auto);
        is_whole(&world, &remote);
    }
}

#[test]
fn a_base_that_came_back_as_a_delta_is_stored_or_repaired_in_a_plain_frame() {
    for repairs in [false, true] {
        let (world, remote, pack) = with_a_held_base();
        remote.delete(&[pack]).unwrap();
        mend(&world, &remote);
        // Another store has it as a delta of what both stores have.
        let elsewhere = empty(&world);
        put_as(&world, &elsewhere, "steps-2", OTHER, DeltaBase::None);
        put_as(&world, &elsewhere, "steps-0", BASE, DeltaBase::Auto);
        assert!(deltas(&world, &elsewhere, BASE) >= 2);
        bring(&world, &elsewhere, &remote, &latest(&[BASE]));
        assert!(deltas(&world, &remote, BASE) >= 2);
        let store = world.open(remote.clone()).unwrap();
        assert_eq!(
            world.get(&store, REF).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        match repairs {
            true => mend(&world, &remote),
            false => put_as(&world, &remote, "steps-0", BASE, DeltaBase::Auto),
        }
        is_whole(&world, &remote);
    }
}

fn mend(world: &World, remote: &Arc<dyn Prune>) {
    let request = RepairRequest {
        read_data: false,
        dry_run: false,
        accept_loss: false,
    };
    repair(&world.open(remote.clone()).unwrap(), request, &Unwatched).unwrap();
}

fn put_as(world: &World, remote: &Arc<dyn Prune>, tree: &str, target: &str, base: DeltaBase) {
    let mut request = request(&world.tree(tree), target);
    tree.clone_into(&mut request.message);
    request.delta_base = base;
    put(&world.open(remote.clone()).unwrap(), &request, &Unwatched).unwrap();
}

#[test]
fn segments_are_made_anew_with_the_bases_that_packs_name() {
    let (world, remote) = trained();
    let found = deltas(&world, &remote, REF);
    let segments = world
        .open(remote.clone())
        .unwrap()
        .state()
        .unwrap()
        .segments;
    for segment in segments.keys() {
        remote.delete(&[segment_key(*segment)]).unwrap();
    }
    let store = world.open(remote.clone()).unwrap();
    let request = RepairRequest {
        read_data: false,
        dry_run: false,
        accept_loss: false,
    };
    let repaired = repair(&store, request, &Unwatched).unwrap();
    assert!(
        repaired.hits.is_empty() && repaired.packs_kept > 2,
        "{repaired:#?}"
    );
    assert_eq!(deltas(&world, &remote, REF), found);
    is_clean(&world, &remote);
    world.check(remote.clone(), "segments made anew");
}

#[test]
fn another_store_gets_deltas_with_their_bases_or_what_they_stand_for() {
    let (world, remote) = trained();
    // Only the newest version is copied. Its destination does not get the base, so it must not need one.
    let alone = empty(&world);
    bring(&world, &remote, &alone, &latest(&[REF]));
    assert_eq!(deltas(&world, &alone, REF), 0);
    is_clean(&world, &alone);
    world.check(alone.clone(), "the newest alone");
    // All versions in order, as a mirror gets them.
    let mirror = empty(&world);
    let request = all(&[REF]);
    bring(&world, &remote, &mirror, &request);
    assert_eq!(deltas(&world, &mirror, REF), deltas(&world, &remote, REF));
    is_clean(&world, &mirror);
    assert_eq!(world.check(mirror.clone(), "all").len(), 2);
    tree(&world, "steps-2", &safetensors(&model(2)));
    world.put(remote.clone(), "steps-2", REF).unwrap();
    let report = bring(&world, &remote, &mirror, &request);
    assert!(
        report.sent_bytes < 2 * NUMBERS as u64 * 45 / 100,
        "{report:?}"
    );
    assert!(deltas(&world, &mirror, &format!("{REF}@3")) >= 4);
    is_clean(&world, &mirror);
    assert_eq!(world.check(mirror.clone(), "all and one more").len(), 3);
}
