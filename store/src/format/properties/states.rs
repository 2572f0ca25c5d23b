//! Log entries and states of any content.

use super::*;

pub(super) fn change() -> impl Strategy<Value = Change> {
    let packs = || vec(pack_id(), 0..4);
    let set = (
        ref_name(),
        1..u64::MAX,
        root(),
        content(),
        any::<String>(),
        option::of(time()),
        (option::of(origin()), any::<bool>()),
    );
    prop_oneof![
        (segment_id(), info()).prop_map(|(segment, info)| Change::AddSegment { segment, info }),
        segment_id().prop_map(|segment| Change::DropSegment { segment }),
        packs().prop_map(|packs| Change::CondemnPacks { packs }),
        (packs(), vec(segment_id(), 0..4))
            .prop_map(|(packs, segments)| Change::Forget { packs, segments }),
        set.prop_map(
            |(name, version, root, times, message, expires, (origin, private))| {
                Change::SetRef {
                    name,
                    version,
                    root,
                    times,
                    message,
                    expires,
                    origin: origin.map(Box::new),
                    ends: Vec::new(),
                    private,
                }
            }
        ),
        (ref_name(), any::<u64>()).prop_map(|(name, version)| Change::DropRef { name, version }),
        (ref_name(), any::<u64>(), any::<bool>()).prop_map(|(name, version, pinned)| Change::Pin {
            name,
            version,
            pinned
        }),
    ]
}

pub(super) fn entry() -> impl Strategy<Value = LogEntry> {
    let fields = (
        1..=u64::MAX,
        any::<[u8; 16]>(),
        time(),
        who(),
        vec(change(), 0..6),
    );
    fields.prop_map(|(number, commit, time, who, changes)| LogEntry {
        number,
        commit: CommitId(commit),
        time,
        who,
        changes,
    })
}

pub(super) fn condemned() -> impl Strategy<Value = Condemned> {
    (0..1000_u64, time()).prop_map(|(entry, time)| Condemned { entry, time })
}

pub(super) fn version() -> impl Strategy<Value = Version> {
    let fields = (
        root(),
        content(),
        time(),
        who(),
        any::<(String, bool, bool)>(),
        option::of(time()),
        option::of(origin()),
    );
    fields.prop_map(
        |(root, times, time, who, (message, pinned, private), expires, origin)| Version {
            root,
            times,
            time,
            who,
            message,
            pinned,
            expires,
            origin: origin.map(Box::new),
            private,
        },
    )
}

pub(super) fn ref_state() -> impl Strategy<Value = RefState> {
    (1000..2000_u64, btree_map(1..1000_u64, version(), 0..3))
        .prop_map(|(last, versions)| RefState { last, versions })
}

pub(super) fn state() -> impl Strategy<Value = State> {
    let fields = (
        1000..u64::MAX,
        btree_map(segment_id(), info(), 0..4),
        btree_map(segment_id(), condemned(), 0..4),
        btree_map(pack_id(), condemned(), 0..4),
        btree_map(ref_name(), ref_state(), 0..4),
    );
    fields.prop_map(|(number, segments, dropped, condemned, refs)| State {
        policy: Policy::default(),
        number,
        segments,
        dropped,
        condemned,
        refs,
        ..State::default()
    })
}
