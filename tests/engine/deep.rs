//! Trees that are too deep for recursion on a stack.

use std::fs;
use std::sync::Arc;

use store::check::ReadData;
use store::inspect::{ListOptions, diff, ls, summarize};
use store::refs::drop_versions;
use store::remote::Objects;
use store::replicate::{Forgetful, replicate};
use store::{Reader, Store, Unwatched};

use crate::collect::eager;
use crate::damaged::REF;
use crate::lost::get_to;
use crate::stores::{name, put_tree, spec, store_in};

#[test]
fn a_deep_tree_is_walked_on_a_small_stack() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let mut deep = source.clone();
    for _ in 0..1500 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), b"at the end").unwrap();
    let store = store_in(dir.path());
    put_tree(&store, &source, REF);
    fs::write(deep.join("file"), b"at the very end").unwrap();
    put_tree(&store, &source, REF);
    let out = dir.path().join("out");
    let walk = move || {
        let report = crate::damaged::verify_target(&store, ReadData::Nothing, None).unwrap();
        assert!(report.is_clean(), "{report:#?}");
        let reader = Reader::new(&store).unwrap();
        let (mut listed, options) = (
            0,
            ListOptions {
                recursive: true,
                times: true,
                lost: false,
            },
        );
        let mut count = |_| {
            listed += 1;
            Ok(())
        };
        ls(&reader, &spec(REF), options, &mut count).unwrap();
        assert_eq!(listed, 1501);
        let (before, after) = (spec(&format!("{REF}@1")), spec(REF));
        assert_eq!(diff(&reader, &before, &after, &mut |_| Ok(())).unwrap(), 1);
        assert_eq!(
            summarize(&reader, &REF.parse().unwrap()).unwrap().entries,
            1501
        );
        get_to(&store, REF, &out).unwrap();
        drop_versions(&store, &name(REF), Some(1)).unwrap();
        let prune = Objects::directory(&out.with_file_name("store")).unwrap();
        gc::collect(&store, &prune, &eager()).unwrap();
        let other = Store::init(Arc::new(Objects::memory()), store.host().clone()).unwrap();
        let request = crate::replicate::latest(&[REF]);
        let report = replicate(&store, &other, &request, &Forgetful, &Unwatched).unwrap();
        assert!(report.stopped.is_none(), "{report:?}");
    };
    let small = std::thread::Builder::new().stack_size(192 << 10);
    small.spawn(walk).unwrap().join().unwrap();
}
