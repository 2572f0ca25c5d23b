//! Paths of files in which tools keep credentials, and how the text of such a file shows that it holds some. Pure.
//!
//! A name alone proves little: source trees contain `.netrc` files, too. It is proof if only the owner may read the
//! file; otherwise the text must show it.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::issuers::pattern;
use super::random::is_random;

/// The text of a file that holds credentials in no issuer's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// `machine x login y password z`.
    Netrc,
    /// A URL with a password in it.
    Url,
    /// `password = z`, in one of many spellings.
    Fields,
    /// `NAME=z`, with a name that means a secret.
    Variables,
    /// A file of a single word.
    Word,
    /// Lines of `host:port:database:user:password`.
    Pgpass,
    /// Any text. The name is proof only if nobody else may read the file.
    Opaque,
    /// Any text, and any mode: no other files have this name.
    Any,
}

/// The kind of credentials in settings that name a server and how to log in.
const A_URL: &str = "a URL with a password";

/// A file in which tools keep credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SecretPlace {
    pub(super) kind: &'static str,
    pub(super) text: Text,
    /// Whether the place is a directory.
    pub(super) is_dir: bool,
}

/// Judges `path` by its last two names.
pub(super) fn of(path: &[u8]) -> Option<SecretPlace> {
    let mut names = path.rsplit(|byte| *byte == b'/');
    let name = std::str::from_utf8(names.next()?).ok()?;
    let parent = std::str::from_utf8(names.next().unwrap_or_default()).unwrap_or_default();
    let (kind, text) = by_parent(parent, name).or_else(|| by_name(name))?;
    let is_dir = name == ".ssh";
    Some(SecretPlace { kind, text, is_dir })
}

/// Whether the path is in a directory of published packages, which hold no secrets of their users.
pub(super) fn is_published(path: &[u8]) -> bool {
    let mut parent: &[u8] = b"";
    path.split(|byte| *byte == b'/').any(|name| {
        let is_it = match name {
            b"site-packages" | b"dist-packages" | b"node_modules" => true,
            b"src" | b"cache" => parent == b"registry",
            b"checkouts" => parent == b"git",
            b"mod" => parent == b"pkg",
            _ => parent == b"lib" && name.starts_with(b"python"),
        };
        parent = name;
        is_it
    })
}

fn by_parent(parent: &str, name: &str) -> Option<(&'static str, Text)> {
    Some(match (parent, name) {
        (".aws", "credentials") => ("credentials of AWS", Text::Fields),
        (".docker", "config.json") => ("credentials of registries", Text::Fields),
        (".kube", "config") => ("credentials of Kubernetes", Text::Fields),
        (".git", "config") => (A_URL, Text::Url),
        (".kaggle", "access_token") => ("credentials of Kaggle", Text::Word),
        (".cargo", "credentials" | "credentials.toml") => {
            ("credentials of a package index", Text::Fields)
        }
        ("wandb", "settings") => ("credentials of Weights & Biases", Text::Fields),
        ("gcloud", "credentials.db" | "access_tokens.db") => {
            ("credentials of Google Cloud", Text::Opaque)
        }
        (".ssh", name) if name.starts_with("id_") && !name.ends_with(".pub") => {
            ("a private key of ssh", Text::Opaque)
        }
        _ => return None,
    })
}

fn by_name(name: &str) -> Option<(&'static str, Text)> {
    let is_backup = |of: &str| {
        let rest = name.strip_prefix(of);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '~', '-']))
    };
    if is_backup(".netrc") || is_backup("_netrc") {
        return Some(("passwords of .netrc", Text::Netrc));
    }
    let is_sample = ["example", "sample", "template", "dist", "defaults"]
        .iter()
        .any(|end| name.ends_with(end));
    if is_backup(".env") && !is_sample {
        return Some(("secrets of an environment", Text::Variables));
    }
    Some(match name {
        ".git-credentials" => ("passwords of git", Text::Url),
        "pip.conf" | "pip.ini" | "uv.toml" | "poetry.toml" | "Pipfile" | ".condarc"
        | ".gitmodules" => (A_URL, Text::Url),
        name if is_list_of_packages(name) => (A_URL, Text::Url),
        "munge.key" => ("the key of munge", Text::Opaque),
        ".ssh" => ("keys of ssh", Text::Opaque),
        "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ecdsa_sk" | "id_ed25519" | "id_ed25519_sk" => {
            ("a private key of ssh", Text::Opaque)
        }
        "kaggle.json" => ("credentials of Kaggle", Text::Fields),
        ".dockercfg" | ".dockerconfigjson" => ("credentials of registries", Text::Fields),
        ".pgpass" => ("passwords of databases", Text::Pgpass),
        ".my.cnf" | ".s3cfg" | ".boto" | ".pypirc" | "rclone.conf" | "credentials" => {
            ("credentials", Text::Fields)
        }
        ".npmrc" | ".yarnrc" => ("credentials of a package index", Text::Fields),
        "token" | "token.txt" | ".token" | "hf_token" | "hf_token.txt" | "access_token"
        | ".vault-token" | "api_key" | "api_key.txt" => ("a token", Text::Word),
        ".modal.toml" => ("credentials of Modal", Text::Fields),
        ".trussrc" => ("credentials of Baseten", Text::Fields),
        "msal_token_cache.json" | "msal_token_cache.bin" => ("tokens of Azure", Text::Any),
        "service_principal_entries.json" | "service_principal_entries.bin" => {
            ("credentials of Azure", Text::Fields)
        }
        "stored_tokens" => ("tokens of Hugging Face", Text::Fields),
        _ => return None,
    })
}

/// `requirements.txt`, `requirements-dev.in`, `constraints.txt`.
fn is_list_of_packages(name: &str) -> bool {
    let is_one = name.starts_with("requirements") || name.starts_with("constraints");
    is_one && (name.ends_with(".txt") || name.ends_with(".in"))
}

impl SecretPlace {
    /// Whether the name is proof if only the owner may read the file. Files of variables, of one word or of URLs often
    /// have such names and modes for other reasons.
    pub(super) fn is_private_proof(&self) -> bool {
        !matches!(self.text, Text::Variables | Text::Word)
            && !["credentials", A_URL].contains(&self.kind)
    }

    /// Whether the file counts even if it is no text.
    pub(super) fn is_any(&self) -> bool {
        self.text == Text::Any
    }

    /// Whether `text`, the whole file, holds credentials as expected at this place.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        match self.text {
            Text::Netrc => is_given(&NETRC, text),
            Text::Url => is_given(&URL, text),
            Text::Fields => is_given(&FIELDS, text) || is_given(&URL, text),
            Text::Variables => is_given(&VARIABLES, text) || is_given(&URL, text),
            Text::Pgpass => is_given(&PGPASS, text),
            Text::Word => {
                let word = text.trim_ascii();
                let is_word = word.iter().all(u8::is_ascii_graphic);
                is_word && (20..4096).contains(&word.len()) && is_random(word)
            }
            Text::Opaque => false,
            Text::Any => !text.is_empty(),
        }
    }
}

type Lazy = LazyLock<Option<Regex>>;

static NETRC: Lazy = LazyLock::new(|| pattern(r"password\s{1,80}(\S{4,})"));
static URL: Lazy = LazyLock::new(|| pattern(r"[a-z]{3,9}://[^\s:/@]{0,200}:([^\s/@]{4,})@"));
static PGPASS: Lazy = LazyLock::new(|| {
    pattern(r"(?m)^[^:#\n]{1,300}:[^:\n]{1,9}:[^:\n]{1,99}:[^:\n]{1,99}:(\S{4,})$")
});
static FIELDS: Lazy = LazyLock::new(|| {
    pattern(
        r#"(?i)(?:password|passwd|secret|token|api_?key|access_?key|client-key-data|"auth"|"key"|_auth)["']?[ \t]{0,40}[:=][ \t]{0,40}["']?([^\s"'{}\[\],]{8,})"#,
    )
});
static VARIABLES: Lazy = LazyLock::new(|| {
    pattern(
        r#"(?im)^[ \t]{0,40}(?:export[ \t]{1,9})?[A-Z0-9_]{0,80}(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS)[A-Z0-9_]{0,40}[ \t]{0,9}=[ \t]{0,9}["']?([^\s"'#]{8,})"#,
    )
});

/// Whether `pattern` finds a value that is no placeholder.
fn is_given(pattern: &Lazy, text: &[u8]) -> bool {
    let Some(pattern) = pattern.as_ref() else {
        return false;
    };
    let mut values = pattern
        .captures_iter(text)
        .filter_map(|found| found.get(1).map(|value| value.as_bytes()));
    values.any(|value| !is_to_be_replaced(value))
}

/// Whether a value is a placeholder: `$TOKEN`, `<token>`, `your-token`, `/run/secrets/token`, `xxxxxxxx`, `changeme`.
fn is_to_be_replaced(value: &[u8]) -> bool {
    let small = String::from_utf8_lossy(value).to_ascii_lowercase();
    let begins = [
        "$", "<", "{", "%", "your", "/", "./", "../", "~", "true", "false", "null",
    ];
    let holds = [
        "your_",
        "your-",
        "changeme",
        "change_me",
        "change-me",
        "placeholder",
        "example",
        "xxxx",
        "replace",
        "****",
        "dummy",
    ];
    let distinct: std::collections::BTreeSet<u8> = value.iter().copied().collect();
    distinct.len() < 4
        || begins.iter().any(|begin| small.starts_with(begin))
        || holds.iter().any(|word| small.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_credentials_are_known_by_place_and_text() {
        for (path, text) in [
            (".netrc", "machine a login b password c0ffee"),
            ("a/_netrc", "machine a\nlogin b\npassword c0ffee\n"),
            (".netrc.bak", "machine a login b password c0ffee"),
            (".git-credentials", "https://me:c0ffee@example.org\n"),
            (
                ".aws/credentials",
                "[default]\naws_secret_access_key = kT9vX2mQ\n",
            ),
            (
                ".kaggle/kaggle.json",
                "{\"username\":\"me\",\"key\":\"4f9d02c1b8e67a35\"}",
            ),
            (
                ".docker/config.json",
                "{\"auths\":{\"r\":{\"auth\": \"bWU6c2VjcmV0cw==\"}}}",
            ),
            (".env", "A=1\nexport DB_PASSWORD='correct-horse'\n"),
            ("app/.env.production", "STRIPE_SECRET_KEY=kT9vX2mQ4w\n"),
            ("token.txt", "Zm9vYmFyLXRoaXMtaXMtYS1rZXk0N2Qx\n"),
            (".pgpass", "db:5432:app:me:hunter22\n"),
            (".pypirc", "[pypi]\nusername: me\npassword: hunter2222\n"),
            (".npmrc", "//registry/:_authToken=kT9vX2mQ4w\n"),
            (
                ".modal.toml",
                "[me]\ntoken_id = \"ak-x\"\ntoken_secret = \"as-kT9vX2mQ4w\"\n",
            ),
            (
                ".trussrc",
                "[baseten]\nremote_provider = baseten\napi_key = kT9vX2mQ.4wZ8\n",
            ),
            (".azure/msal_token_cache.json", "{\"AccessToken\": {}}"),
            ("msal_token_cache.bin", "\u{1}\0"),
            (".kube/config", "users:\n- user:\n    token: kT9vX2mQ4w\n"),
            (".git/config", "url = https://me:c0ffee@example.org/x\n"),
            ("requirements.txt", "-i https://me:c0ffee@example.org/x\n"),
        ] {
            let place = of(path.as_bytes());
            assert!(
                place.is_some_and(|place| place.is_in(text.as_bytes())),
                "{path}"
            );
        }
        for (path, text) in [
            (".netrc", "# machine a login b\n"),
            (
                ".env",
                "DEBUG=1\nAPI_KEY=\nTOKEN=your-token\nSECRET=$SECRET\nPASSWORD=changeme\n",
            ),
            (".docker/config.json", "{\"credsStore\": \"desktop\"}"),
            ("token", "the, of and"),
            (".npmrc", "//registry/:_authToken=${NPM_TOKEN}\n"),
            (
                ".trussrc",
                "[baseten]\nremote_url = https://app.baseten.co\n",
            ),
            ("credentials", "no fields here"),
            (".git/config", "url = https://me@example.org/x\n"),
            (
                "pip.conf",
                "index-url = https://me:<password>@example.org:443/x\n",
            ),
        ] {
            let place = of(path.as_bytes());
            assert!(
                place.is_some_and(|place| !place.is_in(text.as_bytes())),
                "{path}"
            );
        }
        for path in [
            "tokenizer.json",
            ".env.example",
            "a/credentials.py",
            ".ssh/id_rsa.pub",
            "config.json",
            ".environment",
        ] {
            assert_eq!(of(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn packages_as_they_were_published_are_known() {
        for (path, expected) in [
            (
                "venv/lib/python3.11/site-packages/tornado/test/test.key",
                true,
            ),
            ("usr/lib/python3.11/test/keycert.pem", true),
            ("home/.cargo/registry/src/index/x/key.pem", true),
            ("home/go/pkg/mod/x/key.pem", true),
            ("a/node_modules/x/key.pem", true),
            ("src/python/key.pem", false),
            ("lib/key.pem", false),
            ("registry/key.pem", false),
        ] {
            assert_eq!(is_published(path.as_bytes()), expected, "{path}");
        }
    }
}
