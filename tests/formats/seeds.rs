//! The seeds of the random tests: inputs that each fuzz target accepts in different ways.

use store::codec::{Encoder, LEVEL};
use store::format::{checkpoint_key, log_key};
use support::Random;

use crate::{beside, binary, bundle, checkpoint, sealed};

const COMMIT: &[u8] =
    br#"{"key": "header", "value": {"summary": "say \"content\": \"x\"", "parentCommit": "p"}}
{"key":"file","value":{"content":"aGVsbG8gd29ybGQ=","path":"a/content","encoding":"base64"}}

{"value": {"path": "content", "content": "", "encoding": "base64"}, "key": "file"}
{"key": "lfsFile", "value": {"path": "b", "algo": "sha256", "oid": "0a", "size": 5}}
{"key": "deletedFolder", "value": {"path": "old/"}}
"#;
const LISTED: &str = r#"[{"type":"file","path":"a/config.json","size":17,"oid":"OID"},
{"type":"directory","path":"a","size":0,"oid":"OID"},
{"type":"file","path":"model.bin","size":9000000000,"oid":"OID","lfs":{"oid":"SHA","size":9000000000,"pointerSize":134}}]"#;
const LISTING: &str = r#"{"format_version":1,"files":{"a/config.json":{"size":17,"blob_id":"OID","lfs_sha256":null},"b":{"size":0,"blob_id":"OID","lfs_sha256":"SHA"}}}"#;
const PATHS: [&str; 12] = [
    "/api/models/owner/name",
    "/api/models/name/tree/main/sub/dir",
    "/team/vision/api/datasets/owner/name/revision/refs%2Fpr%2F1",
    "/project/x/owner/name/resolve/main/a%20b/model.safetensors",
    "/datasets/owner/name/resolve/0123456789012345678901234567890123456789/data.parquet",
    "/api/models/owner/name/paths-info/main",
    "/api/spaces/owner/name/refs",
    "/api/models/owner/name/commits/main",
    "/api/models/owner/name/preupload/main",
    "/api/models/owner/name/commit/main",
    "/owner/name.git/info/lfs/objects/batch",
    "/api/kernels/owner/name/xet-read-token/main",
];
const BODIES: [&str; 5] = [
    r#"{"operation":"upload","objects":[{"oid":"SHA","size":9000000000},{"oid":"SHA","size":0}]}"#,
    r#"{"files":[{"path":"a/b.bin","sample":"AAEC","size":512},{"path":"c"}]}"#,
    r#"{"paths":["a","b/c"],"expand":true}"#,
    "paths=a%20b&paths=c%2Fd&expand=True",
    "612f62",
];
const PAGES: [&str; 9] = [
    "/",
    "/-/space",
    "/-/host/",
    "/-/caches\n/behind/a proxy",
    "/-/project/x",
    "/-/project/x/runs/7\n/store",
    "/-/team/y/model@12/a%20b/%ff%00c\n//evil.example",
    "/-/team/y/model@latest/checkpoints",
    "/-/project/x/m@7\n/../up",
];
const RANGES: [&str; 6] = [
    "bytes=0-",
    "bytes=0-0",
    "bytes=10-11272",
    "bytes=-10",
    "bytes= 1 - 2 ",
    "bytes=1-18446744073709551615",
];
const REQUESTS: [&str; 7] = [
    "/",
    "/project.x?list-type=2&prefix=a%2F&delimiter=%2F&max-keys=7&encoding-type=url\nhost:h",
    "/project.x?marker=a&fetch-owner=true\nhost: h",
    "/project.x/ref@3/a%20b+c/model.bin\nhost:h\nrange:bytes=0-1",
    "/team.y/?location",
    "/team.y/a?versionId=null&response-content-type=text%2Fplain\nhost:h\nif-none-match:\"x\"",
    "/project.x/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=trainer%2F20130524%2Fx%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=00\nhost:h",
];
const NAMES: [&str; 7] = [
    "project/x/runs/7",
    "project/x/runs/7@12:a/b c.txt",
    "team/y/model:",
    "team/y/model@latest:checkpoints/",
    "team/y",
    "project/a-b.c_d",
    "project/x/tokenizer@1",
];

/// Inputs that `target` accepts.
pub(crate) fn good(target: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    match target {
        "checkpoint" => [objects(&["checkpoint"]), vec![checkpoint::open()]].concat(),
        "frame" => frames(),
        "hub_body" => BODIES.map(hashed).into(),
        "hub_commit" => [7, 1, 255].map(|piece| [&[piece], COMMIT].concat()).into(),
        "hub_listing" => [LISTED, LISTING].map(hashed).into(),
        "hub_path" => texts(&PATHS),
        "name" => {
            let keys = [log_key(7), checkpoint_key(1 << 40)].map(String::into_bytes);
            [texts(&NAMES), keys.to_vec()].concat()
        }
        "page_path" => texts(&PAGES),
        "range" => RANGES
            .map(|text| [b"\x64\0", text.as_bytes()].concat())
            .into(),
        "s3_request" => texts(&REQUESTS),
        _ => objects(malformed_kinds(target)),
    }
}

/// The kinds of objects that `target` decodes.
pub(crate) fn malformed_kinds(target: &str) -> &[&str] {
    match target {
        "bundle" => &["bundle"],
        "kept" => &["modes", "owners", "xattrs"],
        "checkpoint" => &["checkpoint"],
        "format" => &["format"],
        "list" => &["list"],
        "log" => &["log"],
        "pack" => &["pack"],
        "segment" => &["segment"],
        "times" => &["times"],
        "tree" => &["tree"],
        _ => &[],
    }
}

fn objects(kinds: &[&str]) -> Vec<Vec<u8>> {
    let all = [
        binary::good(),
        sealed::good(),
        checkpoint::good(),
        beside::good(),
        bundle::good(),
    ];
    let all = all.into_iter().flatten();
    all.filter(|(kind, _)| kinds.contains(kind))
        .map(|(_, bytes)| bytes)
        .collect()
}

fn hashed(text: &str) -> Vec<u8> {
    let text = text.replace("OID", &"0a".repeat(20));
    text.replace("SHA", &"1b".repeat(32)).into_bytes()
}

/// Frames, preceded by their decoded length: raw, zstd, and numbers in planes.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let numbers: Vec<u8> = (0..8192)
        .flat_map(|_| (0x3f80 + u16::try_from(random.below(512)).unwrap()).to_le_bytes())
        .collect();
    let raws = [
        random.bytes(100),
        random.text(3000),
        vec![0; 5000],
        numbers,
        b"x".to_vec(),
    ];
    let mut encoder = Encoder::new(LEVEL).unwrap();
    raws.map(|raw| {
        let mut stored = Vec::new();
        encoder.encode(&raw, &mut stored).unwrap();
        let len = u32::try_from(raw.len()).unwrap();
        [&len.to_le_bytes()[..], &stored].concat()
    })
    .into()
}
