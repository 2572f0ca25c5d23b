//! Deltas beside collectors, and frames that no put would write.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use store::format::{Change, LOG_PREFIX, Who};
use store::read::Reader;
use store::remote::Prune;
use store::remote::testing::scripted::{Scripted, Step, When};
use store::{ChunkId, DeltaBase, ErrorKind, Store, Unwatched, put};

use crate::collect::{eager, run};
use crate::deltas::{OTHER, REF, halved, is_clean, model, safetensors, trained, tree, weights};
use crate::stores::{name, noise, request};
use crate::world::World;

/// Condemns these packs, like a collector that checks nothing.
fn condemn(store: &Store, packs: Vec<store::PackId>) {
    let mut state = store.state().unwrap();
    let change = Change::CondemnPacks { packs };
    let remote = store.remote().as_ref();
    store::log::commit(remote, &mut state, &Who::default(), &mut |_, _| {
        Ok(vec![change.clone()])
    })
    .unwrap();
}

/// The packs of the base are condemned at each step of a put that makes deltas of it. The put then stores again what no
/// longer stands.
#[test]
fn a_base_that_is_taken_while_a_put_counts_on_it_is_done_without() {
    taken_at_every_step(&model(2));
}

/// An additional tensor changes the header, too, so the put relies on nothing but the bases.
#[test]
fn a_base_that_is_all_that_a_put_counts_on_is_done_without_when_it_is_taken() {
    let mut tensors = model(2);
    tensors.push((9, noise(9, 200)));
    taken_at_every_step(&tensors);
}

fn taken_at_every_step(tensors: &[(usize, Vec<u8>)]) {
    let mut steps = 0;
    for at in 0.. {
        let (world, remote) = trained();
        tree(&world, "steps-2", &safetensors(tensors));
        let count = Arc::new(AtomicUsize::new(0));
        let script = {
            let (remote, count) = (remote.clone(), count.clone());
            let host = world.host();
            move |when, step, key: &str| {
                let is_step = when == When::Before
                    && ((step == Step::Create && key.starts_with(LOG_PREFIX))
                        || (step == Step::Put && key.starts_with("segments/")));
                if is_step && count.fetch_add(1, Ordering::SeqCst) == at {
                    let store = Store::open(remote.clone(), host.clone()).unwrap();
                    store::refs::drop_versions(&store, &name(REF), None).unwrap();
                    let index = store.view().unwrap().index;
                    let packs = index.packs().map(|pack| pack.id).collect();
                    condemn(&store, packs);
                }
            }
        };
        let scripted: Arc<dyn Prune> = Arc::new(Scripted::new(remote.clone(), script));
        let mut request = request(&world.tree("steps-2"), OTHER);
        "steps-2".clone_into(&mut request.message);
        request.delta_base = DeltaBase::Auto;
        // The base is searched in a version that is live when the put begins.
        let done = put(&world.open(scripted).unwrap(), &request, &Unwatched).unwrap();
        assert_eq!(done.version, Some(1));
        world.check(remote.clone(), &format!("taken at step {at}"));
        is_clean(&world, &remote);
        steps = at;
        if count.load(Ordering::SeqCst) <= at {
            break;
        }
    }
    assert!(steps > 1, "{steps}");
}

/// Packs of frames made by hand: a delta of a chunk that is in a delta, and a delta of a chunk that does not exist.
#[test]
fn a_delta_of_a_delta_and_one_of_nothing_are_offered_by_nobody() {
    use store::codec::{DeltaBase as Base, Elements, Encoder, LEVEL};
    use store::format::{FrameKind, PackChunk, PackKind};
    use store::pack::{EncodedFrame, PackWriter, SegmentBuilder};
    let world = World::new();
    let remote = world.memory();
    let store = world.open(remote.clone()).unwrap();
    let all = [1, 2, 3, 4].map(|steps| halved(&weights(steps, 1000)));
    let ids = all.each_ref().map(|bytes| ChunkId::of(bytes));
    let nowhere = ChunkId::of(b"nowhere");
    let mut encoder = Encoder::new(LEVEL).unwrap();
    let mut pack = PackWriter::begin(store.remote(), PackKind::Data, store.provenance()).unwrap();
    let bases = [
        None,
        Some((ids[0], &all[0])),
        Some((ids[1], &all[1])),
        Some((nowhere, &all[0])),
    ];
    for ((bytes, id), base) in all.iter().zip(ids).zip(bases) {
        let (mut stored, len) = (Vec::new(), u32::try_from(bytes.len()).unwrap());
        let elements = Elements { width: 2, phase: 0 };
        match base {
            None => encoder
                .encode_elements(bytes, elements, &mut stored)
                .unwrap(),
            Some((base, held)) => {
                let base = Base {
                    ids: vec![base],
                    skip: 0,
                };
                encoder
                    .encode_delta(bytes, elements, &base, held, &mut stored)
                    .unwrap();
            }
        }
        let frame = EncodedFrame {
            stored,
            raw_len: len,
            chunks: vec![PackChunk { id, len }],
            bases: base.map(|(id, _)| id).into_iter().collect(),
        };
        pack.push_as(FrameKind::Data, frame).unwrap();
    }
    let mut builder = SegmentBuilder::default();
    builder.add(&pack.finish().unwrap()).unwrap();
    let added = builder
        .write(store.remote().as_ref(), store.provenance())
        .unwrap()
        .1;
    let mut state = store.state().unwrap();
    store::log::commit(
        store.remote().as_ref(),
        &mut state,
        &Who::default(),
        &mut |_, _| Ok(vec![crate::strange::learn(), added.clone()]),
    )
    .unwrap();
    let store = world.open(remote.clone()).unwrap();
    let reader = Reader::new(&store).unwrap();
    let index = store.view().unwrap().index;
    for (at, is_offered) in [(0, true), (1, true), (2, false), (3, false)] {
        assert_eq!(index.find(&ids[at]).unwrap().is_some(), is_offered, "{at}");
        match reader.meta_chunk(&ids[at]) {
            Ok(bytes) => assert_eq!((bytes, true), (all[at].clone(), is_offered)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                let base = [ids[1], nowhere][at - 2];
                let words =
                    format!("is the difference to chunk {base}, which no live segment offers");
                assert!(error.to_string().contains(&words), "{error}");
            }
        }
    }
    // No version needs them, so the store is clean, and they can be collected.
    is_clean(&world, &remote);
    run(&world, &remote, &eager()).unwrap();
    assert_eq!(remote.list("packs").unwrap().len(), 0);
}

/// A put has chosen its base; then the version of the base is dropped. The put ends at each step of a collector that
/// did not mark the base, whose pack has other live chunks. The collector must still keep the base.
#[test]
fn a_put_that_ends_between_two_steps_of_a_collector_keeps_its_base() {
    let mut steps = 0;
    for at in 0.. {
        let world = World::new();
        let remote = world.memory();
        tree(&world, "steps-0", &safetensors(&model(0)));
        fs::write(world.tree("steps-0").join("noise"), noise(3, 1 << 20)).unwrap();
        world.put(remote.clone(), "steps-0", REF).unwrap();
        fs::create_dir(world.tree("noise")).unwrap();
        fs::write(world.tree("noise").join("noise"), noise(3, 1 << 20)).unwrap();
        world
            .put(remote.clone(), "noise", "project/b/noise")
            .unwrap();
        tree(&world, "steps-1", &safetensors(&model(1)));
        let ((ready, begun), (go, wait), (done, ended)) = (channel(), channel(), channel());
        // Stops when everything but the version's entry is stored.
        let stops = Mutex::new(Some((ready, wait)));
        let script = move |when, step, key: &str| {
            let is_entry = step == Step::Create && key.starts_with(LOG_PREFIX);
            if when == When::Before
                && is_entry
                && let Some((ready, wait)) = stops.lock().unwrap().take()
            {
                ready.send(()).unwrap();
                wait.recv().unwrap();
            }
        };
        let writer: Arc<dyn Prune> = Arc::new(Scripted::new(remote.clone(), script));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                world.put(writer, "steps-1", REF).unwrap();
                done.send(()).unwrap();
            });
            begun.recv().unwrap();
            let store = world.open(remote.clone()).unwrap();
            store::refs::drop_versions(&store, &name(REF), Some(1)).unwrap();
            let count = Arc::new(AtomicUsize::new(0));
            let rest = Arc::new(Mutex::new(Some((go, ended))));
            let end = |rest: &Mutex<Option<(Sender<()>, Receiver<()>)>>| {
                if let Some((go, ended)) = rest.lock().unwrap().take() {
                    go.send(()).unwrap();
                    ended.recv().unwrap();
                }
            };
            let script = {
                let (count, rest) = (Arc::clone(&count), Arc::clone(&rest));
                move |when, step, _: &str| {
                    let writes = when == When::Before && matches!(step, Step::Create | Step::Put);
                    if writes && count.fetch_add(1, Ordering::SeqCst) == at {
                        end(&rest);
                    }
                }
            };
            let collector: Arc<dyn Prune> = Arc::new(Scripted::new(remote.clone(), script));
            run(&world, &collector, &eager()).unwrap();
            end(&rest);
            steps = count.load(Ordering::SeqCst);
        });
        assert_eq!(
            world
                .check(remote.clone(), &format!("ended at step {at}"))
                .len(),
            2
        );
        is_clean(&world, &remote);
        if steps <= at {
            break;
        }
    }
    assert!(steps > 2, "{steps}");
}
