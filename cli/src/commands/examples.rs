//! Examples of each verb, for `store VERB --help` and for the manual.

/// A command line, and its effect.
type Example = (&'static str, &'static str);

const EXAMPLES: [(&str, &[Example]); 33] = [
    (
        "put",
        &[
            (
                "store put ~/.cache/huggingface project/llama-ft/hf",
                "a Hugging Face cache, without its token",
            ),
            (
                "store put data team/vision/imagenet --exclude '*.tmp' --ttl 30d",
                "kept for 30 days",
            ),
        ],
    ),
    (
        "save",
        &[
            (
                "store save /scratch/job-7/hf",
                "merges what the job changed into the ref that the tree was made from",
            ),
            (
                "store save results project/demo/results --base 0",
                "adds what is in a directory, and deletes nothing",
            ),
        ],
    ),
    (
        "get",
        &[
            (
                "store get project/llama-ft/hf@1 copy",
                "the first version, as a private copy",
            ),
            ("store get team/vision/imagenet:train/0.tar .", "one file"),
        ],
    ),
    (
        "materialize",
        &[
            (
                "store materialize project/llama-ft/hf /scratch/job-7/hf",
                "or bring the tree to the newest version",
            ),
            (
                "store materialize project/llama-ft/ckpt@latest:rank-0 /scratch/resume",
                "a part of the newest checkpoint, on a node that resumes",
            ),
            (
                "store materialize --prefetch project/llama-ft/hf",
                "only fill the pool, before the job starts",
            ),
        ],
    ),
    (
        "run",
        &[
            (
                "store run --project llama-ft --team vision -- python train.py",
                "with the caches of both, saved when it ends",
            ),
            (
                "store run --project llama-ft --layout baseten --save-every 10m -- python train.py",
                "where the platform has them, and also saved while it runs",
            ),
            (
                "store run --seed project/llama-ft/imagenet -- python prepare.py",
                "makes the ref from what the script leaves in $STORE_SEED_DIR, once for all that start",
            ),
        ],
    ),
    (
        "cache",
        &[
            (
                "store neff pull project/llama-ft/neff team/vision/neff",
                "before a job: what either has and the Neuron cache of this host lacks",
            ),
            (
                "store cache --profile triton push ~/.triton/cache project/llama-ft/triton",
                "after it: what was compiled",
            ),
            (
                "store neff why MODULE_10042+d41d8cd9 project/llama-ft/neff",
                "the parts of the key that differ in the nearest entries",
            ),
        ],
    ),
    (
        "wait",
        &[(
            "store wait project/llama-ft/imagenet --timeout 2h",
            "until the ref exists",
        )],
    ),
    (
        "watch",
        &[
            (
                "store watch /mnt/ckpts project/llama-ft/ckpt --keep 3",
                "beside the training; the three newest checkpoints are kept",
            ),
            (
                "store watch /mnt/ckpts project/llama-ft/ckpt --done DONE --once",
                "what your own writer has finished so far",
            ),
        ],
    ),
    (
        "serve",
        &[
            (
                "store serve",
                "then: HF_ENDPOINT=http://127.0.0.1:8710/project/llama-ft hf download org/model",
            ),
            (
                "store serve --listen 127.0.0.1:0 --root project/llama-ft --access-log serve.log",
                "on a free port; the address alone is an endpoint too",
            ),
            (
                "store serve --upstream https://hub.example --upstream-token-env HF_TOKEN",
                "what a namespace lacks is fetched once and kept; `store token add --upstream` says who may see the rest",
            ),
        ],
    ),
    (
        "token",
        &[
            (
                "store token add ci --role write --namespace project/llama-ft --expires 90d",
                "prints a token; give it to clients as HF_TOKEN",
            ),
            ("store token ls", "who is let in, where and until when"),
            (
                "store token rm ci",
                "from the next request on, it lets nobody in",
            ),
        ],
    ),
    (
        "cat",
        &[(
            "store cat team/vision/imagenet:README.md",
            "one file, to standard output",
        )],
    ),
    (
        "ls",
        &[
            ("store ls", "all namespaces"),
            (
                "store ls project/llama-ft --sort last-use --reverse",
                "refs, the longest unused first",
            ),
            (
                "store ls project/llama-ft/hf:hub --recursive --long",
                "what is in a directory of a ref",
            ),
        ],
    ),
    (
        "diff",
        &[
            (
                "store diff project/demo/data@1 project/demo/data",
                "two versions",
            ),
            (
                "store diff project/demo/data ./data",
                "a version and a directory",
            ),
        ],
    ),
    (
        "history",
        &[(
            "store history project/llama-ft/hf",
            "all versions, with their origin and last use",
        )],
    ),
    (
        "summarize",
        &[(
            "store summarize project/llama-ft --sort modified",
            "the refs of a namespace, the newest first",
        )],
    ),
    ("du", &[("store du --json", "for a report; sizes in bytes")]),
    (
        "info",
        &[("store info --store h200", "the store of a cluster")],
    ),
    (
        "cluster",
        &[(
            "store cluster add h200 s3://datasets-h200/store --profile h200",
            "a name for a store",
        )],
    ),
    (
        "where",
        &[(
            "store where project/llama-ft/hf",
            "which clusters have it, and which versions",
        )],
    ),
    (
        "push",
        &[(
            "store push project/llama-ft/hf h200",
            "the newest version of a ref",
        )],
    ),
    (
        "pull",
        &[(
            "store pull h200 project/llama-ft --versions all",
            "all versions of all refs of a namespace",
        )],
    ),
    (
        "duplicate",
        &[
            (
                "store duplicate project/llama-ft --from h100 --to h200 --dry-run",
                "what would be sent",
            ),
            ("store duplicate --job nightly", "as the configuration says"),
        ],
    ),
    (
        "export",
        &[(
            "store export /media/disk/llama-ft.bundle project/llama-ft --versions all",
            "a namespace with all its versions, in one file",
        )],
    ),
    (
        "import",
        &[
            (
                "store import /media/disk/llama-ft.bundle",
                "all that the file holds",
            ),
            (
                "store import /media/disk/llama-ft.bundle project/llama-ft/hf",
                "one ref",
            ),
        ],
    ),
    (
        "rm",
        &[
            (
                "store rm project/llama-ft/hf@1 --dry-run",
                "what it would give back",
            ),
            (
                "store rm project/old --yes",
                "all refs of a namespace, without a question",
            ),
            (
                "store rm project/llama-ft/hf --glob '*.bin' --older-than 90d --dry-run",
                "a new version without these files: which, and what that gives back",
            ),
        ],
    ),
    (
        "undo",
        &[("store undo", "what the last rm dropped comes back")],
    ),
    (
        "pin",
        &[(
            "store pin project/llama-ft/hf@3",
            "kept by all rules, until it is unpinned",
        )],
    ),
    (
        "policy",
        &[(
            "store policy keep 'project/*' --last 3 --within 30d --quota 500GB",
            "for all projects",
        )],
    ),
    (
        "gc",
        &[
            (
                "store gc --dry-run",
                "what would go, and why the rest stays",
            ),
            ("store gc --crontab --schedule daily", "a line for crontab"),
        ],
    ),
    (
        "pool",
        &[(
            "store pool evict --to 100GB",
            "until the pool takes at most this",
        )],
    ),
    (
        "verify",
        &[("store verify --read-data", "every byte of every pack")],
    ),
    (
        "repair",
        &[("store repair --dry-run", "what would be mended")],
    ),
    (
        "init",
        &[(
            "store init --shared /shared/store",
            "for the group of the directory",
        )],
    ),
];

/// The examples of a verb; empty if its usage line is enough.
pub(crate) fn of(verb: &str) -> &'static [Example] {
    let mut known = EXAMPLES.into_iter();
    known
        .find_map(|(name, examples)| (name == verb).then_some(examples))
        .unwrap_or_default()
}

/// The examples in the format of the help.
pub(crate) fn shown(verb: &str) -> String {
    let examples = of(verb).iter();
    examples
        .map(|(line, what)| format!("  {line}\n      {what}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{args, groups};

    #[test]
    fn every_example_is_a_command_line_of_its_verb() {
        for (verb, examples) in EXAMPLES {
            assert!(
                groups::GROUPS
                    .iter()
                    .any(|(_, verbs)| verbs.contains(&verb))
            );
            for (line, _) in examples {
                let words = line.replace('\'', "");
                let words: Vec<&str> = words.split(' ').collect();
                let is_short = (verb, words.get(1)) == ("cache", Some(&"neff"));
                assert!(is_short || words.get(1) == Some(&verb), "{line}");
                let parsed = args::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
