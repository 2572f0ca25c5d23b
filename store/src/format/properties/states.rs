//! Random log entries and states.

use super::*;

pub(super) fn change() -> impl Strategy<Value = Change> {
    let packs = || vec(pack_id(), 0..4);
    let set = (
        ref_name(),
        1..u64::MAX,
        root(),
        sides(),
        any::<String>(),
        option::of(time()),
        (option::of(origin()), any::<bool>()),
        extra(),
    );
    prop_oneof![
        (segment_id(), info()).prop_map(|(segment, info)| Change::AddSegment { segment, info }),
        (segment_id(), option::of(segment_id()))
            .prop_map(|(segment, into)| Change::DropSegment { segment, into }),
        packs().prop_map(|packs| Change::CondemnPacks { packs }),
        (packs(), vec(segment_id(), 0..4))
            .prop_map(|(packs, segments)| Change::Forget { packs, segments }),
        set.prop_map(
            |(name, version, root, sides, message, expires, (origin, private), extra)| {
                Change::SetRef {
                    name,
                    version,
                    root,
                    sides,
                    message,
                    expires,
                    origin: origin.map(Box::new),
                    ends: Vec::new(),
                    private,
                    extra,
                }
            }
        ),
        (ref_name(), any::<u64>()).prop_map(|(name, version)| Change::DropRef { name, version }),
        (ref_name(), any::<u64>(), any::<bool>()).prop_map(|(name, version, pinned)| Change::Pin {
            name,
            version,
            pinned
        }),
        (any::<bool>(), "[a-z0-9-]{1,64}").prop_map(|(is_compatible, name)| {
            let kind = match is_compatible {
                true => FeatureKind::Compatible,
                false => FeatureKind::ReadOnly,
            };
            Change::SetFeature { kind, name }
        }),
    ]
}

pub(super) fn entry() -> impl Strategy<Value = LogEntry> {
    let fields = (
        1..=u64::MAX,
        any::<([u8; 16], [u8; 16], [u8; 32])>(),
        time(),
        who(),
        vec(change(), 0..6),
        option::of(any::<u64>()),
    );
    fields.prop_map(
        |(number, (commit, store, prev), time, who, changes, lost)| LogEntry {
            number,
            store: StoreId(store),
            prev: (number > 1).then_some(EntryId(prev)),
            stands_for: None,
            commit: CommitId(commit),
            time,
            who,
            lost,
            until: lost,
            changes,
            read_as: ReadAs::default(),
        },
    )
}

pub(super) fn condemned() -> impl Strategy<Value = Condemned> {
    (0..1000_u64, time()).prop_map(|(entry, time)| Condemned { entry, time })
}

pub(super) fn version() -> impl Strategy<Value = Version> {
    let fields = (
        root(),
        sides(),
        time(),
        who(),
        any::<(String, bool, bool)>(),
        option::of(time()),
        option::of(origin()),
        extra(),
    );
    fields.prop_map(
        |(root, sides, time, who, (message, pinned, private), expires, origin, extra)| Version {
            root,
            sides,
            time,
            who,
            message,
            pinned,
            expires,
            origin: origin.map(Box::new),
            private,
            extra,
        },
    )
}

pub(super) fn ref_state() -> impl Strategy<Value = RefState> {
    let versions = btree_map(1..1000_u64, version(), 0..3);
    (1000..2000_u64, versions, extra()).prop_map(|(last, versions, extra)| RefState {
        last,
        versions,
        extra,
    })
}

pub(super) fn state() -> impl Strategy<Value = State> {
    let fields = (
        1000..u64::MAX,
        btree_map(segment_id(), info(), 0..4),
        btree_map(segment_id(), condemned(), 0..4),
        btree_map(pack_id(), condemned(), 0..4),
        btree_map(ref_name(), ref_state(), 0..4),
        extra(),
    );
    fields.prop_map(
        |(number, segments, dropped, condemned, refs, extra)| State {
            policy: Policy {
                extra: extra.clone(),
                ..Policy::default()
            },
            features: Features {
                compatible: extra.keys().cloned().collect(),
                ..Features::default()
            },
            extra,
            store: StoreId([8; 16]),
            number,
            entry: Some(EntryId([9; 32])),
            until: number % 3,
            segments,
            dropped,
            condemned,
            refs: refs.into(),
            ..State::default()
        },
    )
}
