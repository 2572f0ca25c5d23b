//! Layouts: where `store run` puts the caches of a job, and the variables that tell the job: `[layout.NAME]`.
//!
//! Two layouts are built in: `plain`, and `baseten` with the paths of that platform. Their compile caches are saved
//! entry by entry as refs of the project, not with the project's cache.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use store::{Error, Globs, Result};

use crate::config::config_file;

/// On failure, the wrong key and the error.
type Wrong = std::result::Result<(), (String, Error)>;

/// A configured layout.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Layout {
    /// The directory that holds all caches, unless the command line names one.
    pub(crate) base: Option<PathBuf>,
    /// The project's cache, relative to the base.
    pub(crate) project: PathBuf,
    /// The team's cache, relative to the base.
    pub(crate) team: PathBuf,
    /// Variables of the job. `{base}`, `{project}`, `{team}` and `{job}` are replaced in their values.
    pub(crate) env: BTreeMap<String, String>,
    /// Symbolic links in the base and their targets, which are replaced like variables. A run is refused if something
    /// else is in the place of one. If the target has `{job}` in it, each run replaces the link.
    pub(crate) links: BTreeMap<PathBuf, String>,
    /// Globs of files that are never saved.
    pub(crate) exclude: Vec<String>,
    /// Compile caches of the job, by profile.
    pub(crate) compile: BTreeMap<String, Compile>,
}

/// A compile cache: pulled before the command, pushed after it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compile {
    /// The directory of the cache; placeholders are replaced as in variables.
    pub(crate) dir: String,
    /// The refs to pull from, in this order. `{project}` and `{team}` stand for the namespaces of the run.
    #[serde(default)]
    pub(crate) pull: Vec<String>,
    /// The ref to push to, with the same placeholders.
    pub(crate) push: Option<String>,
    /// Whether that ref may belong to a team.
    #[serde(default)]
    pub(crate) public: bool,
    /// Globs of the files that a save of the project's cache leaves out. Set in built-in layouts only.
    #[serde(skip)]
    pub(crate) apart: &'static [&'static str],
}

/// The namespaces of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespaces<'n> {
    pub(crate) project: &'n str,
    pub(crate) team: Option<&'n str>,
}

/// The directories of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) base: PathBuf,
    pub(crate) project: PathBuf,
    pub(crate) team: Option<PathBuf>,
    pub(crate) job: String,
}

/// Credentials, locks and other private files that clients and compilers leave in their caches. The paths are exact,
/// because elsewhere in the project's cache, files with these names are the user's data.
const EXCLUDE: [&str; 13] = [
    "huggingface/token",
    "huggingface/stored_tokens",
    "huggingface/.check_for_*_done",
    "huggingface/**/.locks/",
    "huggingface/**/*.lock",
    "huggingface/**/*.lock.soft",
    "huggingface/**/*.incomplete",
    "!huggingface/hub/*/snapshots/**",
    "!huggingface/hub/*/.no_exist/**",
    "neuron/**/*.lock",
    "inductor/**/*.lock",
    "triton/**/*.lock",
    "vllm/**/*.lock",
];

/// Caches of clients and compilers, below the project's cache.
const CLIENTS: [(&str, &str); 6] = [
    ("HF_HOME", "{project}/huggingface"),
    ("HF_DATASETS_CACHE", "{project}/huggingface/datasets"),
    ("NEURON_COMPILE_CACHE_URL", "{project}/neuron"),
    ("TORCHINDUCTOR_CACHE_DIR", "{project}/inductor"),
    ("TRITON_CACHE_DIR", "{project}/triton"),
    ("VLLM_CACHE_ROOT", "{project}/vllm"),
];

/// Variables of every built-in layout.
const OWN: [(&str, &str); 2] = [
    ("STORE_PROJECT_CACHE_DIR", "{project}"),
    ("STORE_TEAM_CACHE_DIR", "{team}"),
];

/// Compile caches at the paths of these variables: profile, directory below the project's cache, and globs of what the
/// project's save leaves out, whatever is there: a link would lead others to where it leads here. The directory of vLLM holds other files too, so only parts of it are left out.
const COMPILERS: [(&str, &str, &[&str]); 5] = [
    ("neff", "neuron", &["/neuron"]),
    ("inductor", "inductor", &["/inductor"]),
    ("triton", "triton", &["/triton"]),
    (
        "vllm",
        "vllm",
        &[
            "/vllm/torch_compile_cache",
            "/vllm/torch_aot_compile",
            "/vllm/.store-cache-*/",
        ],
    ),
    (
        "neff-vllm",
        "vllm/neuron/compile_cache",
        &["/vllm/neuron/compile_cache"],
    ),
];

/// Globs of the compile caches that shipped layouts leave out of the project's cache.
pub(crate) fn pushed_apart() -> impl Iterator<Item = String> {
    let globs = COMPILERS.iter().flat_map(|(_, _, globs)| *globs);
    globs.map(|glob| (*glob).to_owned())
}

impl Layout {
    /// A built-in layout.
    pub(crate) fn shipped(name: &str) -> Option<Self> {
        let own: &[(&str, &str)] = match name {
            "plain" => &[],
            // BT_RW_CACHE_DIR is the base in the current reference; in an older one it was the project's cache.
            "baseten" | "baseten-rw-project" => &[
                ("BT_PROJECT_CACHE_DIR", "{project}"),
                ("BT_TEAM_CACHE_DIR", "{team}"),
                ("BT_RW_CACHE_DIR", "{base}"),
            ],
            _ => return None,
        };
        // A script that works with one layout works with the others.
        let all = OWN.iter().chain(own).chain(&CLIENTS);
        let mut env: BTreeMap<String, String> = all
            .map(|(name, place)| ((*name).to_owned(), (*place).to_owned()))
            .collect();
        if name == "baseten-rw-project" {
            env.insert("BT_RW_CACHE_DIR".to_owned(), "{project}".to_owned());
        }
        let is_plain = name == "plain";
        // The path at which older mounts for Hugging Face had their cache.
        let legacy = ("huggingface".into(), "{project}/huggingface".to_owned());
        Some(Self {
            base: (!is_plain).then(|| PathBuf::from("/root/.cache")),
            project: if is_plain {
                "project"
            } else {
                "user_artifacts"
            }
            .into(),
            team: if is_plain { "team" } else { "team_artifacts" }.into(),
            env,
            links: (!is_plain).then_some(legacy).into_iter().collect(),
            exclude: EXCLUDE.map(str::to_owned).to_vec(),
            compile: COMPILERS.map(Compile::shipped).into(),
        })
    }

    /// Globs that a save of the project's cache leaves out.
    pub(crate) fn apart(&self) -> impl Iterator<Item = String> {
        let globs = self.compile.values().flat_map(|how| how.apart);
        globs.map(|glob| (*glob).to_owned())
    }

    /// Checks the layout before a run starts: paths are below the base, the team gets nothing of the project's, all
    /// placeholders are known, and the globs are valid.
    ///
    /// # Errors
    /// The mistake, with its file and key.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        self.check_keys().map_err(|(key, error)| {
            let error = error.within(format!("layout.{name}.{key}"));
            match config_file() {
                Some(file) => error.within(format!("configuration {}", file.display())),
                None => error,
            }
        })
    }

    fn check_keys(&self) -> Wrong {
        let own = [("project", &self.project), ("team", &self.team)];
        for (key, path) in own {
            check_below(path).map_err(|error| (key.to_owned(), error))?;
        }
        if is_one_in_the_other(&self.project, &self.team) {
            let project = self.project.display();
            let why = Error::invalid(format!(
                "expected a path beside the project's cache ({project}), found {}: one would be saved with the other",
                shown(&self.team)
            ));
            return Err(("team".to_owned(), why));
        }
        for (link, target) in &self.links {
            let key = || format!("links.{}", link.display());
            check_below(link).map_err(|error| (key(), error))?;
            for (what, place) in own {
                if place.starts_with(link) {
                    let why =
                        format!("expected a path of its own, found where the {what}'s cache is");
                    return Err((key(), Error::invalid(why)));
                }
            }
            check_place(target).map_err(|error| (key(), error))?;
        }
        for (variable, text) in &self.env {
            check_text(text).map_err(|error| (format!("env.{variable}"), error))?;
        }
        for (profile, how) in &self.compile {
            let key = || format!("compile.{profile}.dir");
            check_place(&how.dir).map_err(|error| (key(), error))?;
        }
        if let Some(base) = self.base.as_ref().filter(|base| !base.is_absolute()) {
            let base = shown(base);
            let why = Error::invalid(format!("expected an absolute path, found {base}"))
                .hint("`~` is not expanded here; --base DIR is relative to the working directory");
            return Err(("base".to_owned(), why));
        }
        let globs = Globs::new(&self.exclude);
        globs.map_err(|error| ("exclude".to_owned(), error))?;
        Ok(())
    }

    /// The variables of a job. Those that name the team's cache need a run with a team.
    pub(crate) fn variables(&self, places: &Places) -> BTreeMap<String, String> {
        let told = self.env.iter();
        told.filter_map(|(name, text)| Some((name.clone(), places.filled(text)?)))
            .collect()
    }
}

impl Compile {
    fn shipped((profile, below, apart): (&str, &str, &'static [&'static str])) -> (String, Self) {
        let own = format!("{{project}}/{profile}");
        let how = Self {
            dir: format!("{{project}}/{below}"),
            pull: vec![own.clone(), format!("{{team}}/{profile}")],
            push: Some(own),
            public: false,
            apart,
        };
        (profile.to_owned(), how)
    }

    /// Whether this cache belongs to a built-in layout.
    pub(crate) fn is_shipped(&self) -> bool {
        !self.apart.is_empty()
    }
}

impl Namespaces<'_> {
    /// The ref with its placeholders replaced; `None` if it names a team and the run has none.
    pub(crate) fn filled(&self, name: &str) -> Option<String> {
        let mut name = name.to_owned();
        if name.contains("{team}") {
            name = name.replace("{team}", &format!("team/{}", self.team?));
        }
        Some(name.replace("{project}", &format!("project/{}", self.project)))
    }
}

impl Places {
    pub(crate) fn new(layout: &Layout, base: &Path, has_team: bool, job: &str) -> Self {
        Self {
            project: base.join(&layout.project),
            team: has_team.then(|| base.join(&layout.team)),
            base: base.to_path_buf(),
            job: job.to_owned(),
        }
    }

    /// The text with its placeholders replaced; `None` if it names the team's cache and the run has none.
    pub(crate) fn filled(&self, text: &str) -> Option<String> {
        let shown = |path: &Path| path.display().to_string();
        let mut text = text.to_owned();
        if text.contains("{team}") {
            text = text.replace("{team}", &shown(self.team.as_ref()?));
        }
        let text = text.replace("{base}", &shown(&self.base));
        let text = text.replace("{project}", &shown(&self.project));
        Some(text.replace("{job}", &self.job))
    }
}

/// Checks that a path is relative and stays in the base.
fn check_below(path: &Path) -> Result<()> {
    let is_plain = |part| matches!(part, Component::Normal(_));
    if path.as_os_str().is_empty() {
        return Err(Error::invalid(
            "is missing or empty, expected a path below the base",
        ));
    }
    if !path.components().all(is_plain) || path.starts_with("~") {
        let path = shown(path);
        let why = format!("expected a path below the base, found {path}");
        return Err(Error::invalid(why));
    }
    Ok(())
}

/// Checks that a text is a path that does not depend on the current directory.
fn check_place(text: &str) -> Result<()> {
    check_text(text)?;
    let mut named = ["{base}", "{project}", "{team}"].into_iter();
    let is_named = named.any(|name| {
        let rest = text.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if is_named || text.starts_with('/') {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "expected an absolute path, or one that begins with {{base}}/, {{project}}/ or {{team}}/, found {text:?}"
    )))
}

fn is_one_in_the_other(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn shown(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// Checks that all placeholders are known.
fn check_text(text: &str) -> Result<()> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else {
            return Err(Error::invalid("expected } behind {"));
        };
        if !["base", "project", "team", "job"].contains(&name) {
            return Err(Error::invalid(format!(
                "expected {{base}}, {{project}}, {{team}} or {{job}}, found {{{name}}}"
            )));
        }
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(layout: &Layout, team: bool) -> BTreeMap<String, String> {
        layout.variables(&Places::new(layout, Path::new("/root/.cache"), team, "7"))
    }

    #[test]
    fn the_places_of_the_platform_are_those_of_its_reference() {
        let layout = Layout::shipped("baseten").unwrap();
        layout.check("baseten").unwrap();
        let told = places(&layout, true);
        for (name, place) in [
            ("BT_PROJECT_CACHE_DIR", "/root/.cache/user_artifacts"),
            ("BT_TEAM_CACHE_DIR", "/root/.cache/team_artifacts"),
            ("BT_RW_CACHE_DIR", "/root/.cache"),
            ("STORE_PROJECT_CACHE_DIR", "/root/.cache/user_artifacts"),
            ("STORE_TEAM_CACHE_DIR", "/root/.cache/team_artifacts"),
            ("HF_HOME", "/root/.cache/user_artifacts/huggingface"),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(place), "{name}");
        }
        assert!(!places(&layout, false).contains_key("BT_TEAM_CACHE_DIR"));
        let other = Layout::shipped("baseten-rw-project").unwrap();
        let told = places(&other, false);
        let place = told.get("BT_RW_CACHE_DIR").map(String::as_str);
        assert_eq!(place, Some("/root/.cache/user_artifacts"));
        assert_eq!(Layout::shipped("none"), None);
    }

    #[test]
    fn what_is_shipped_is_in_order_and_names_the_refs_of_the_run() {
        for name in ["plain", "baseten", "baseten-rw-project"] {
            let layout = Layout::shipped(name).unwrap();
            layout.check(name).unwrap();
            Globs::new(&layout.apart().collect::<Vec<_>>()).unwrap();
            let neff = layout.compile.get("neff").unwrap();
            let mut of = Namespaces {
                project: "llama",
                team: None,
            };
            let filled = |of: Namespaces<'_>| {
                let refs = neff.pull.iter().filter_map(|name| of.filled(name));
                refs.collect::<Vec<_>>()
            };
            assert_eq!(filled(of), ["project/llama/neff"]);
            of.team = Some("vision");
            assert_eq!(filled(of), ["project/llama/neff", "team/vision/neff"]);
        }
    }

    /// The wrong key and the error of a layout.
    fn wrong(text: &str) -> String {
        let usual = "project = \"p\"\nteam = \"t\"\n";
        let text = match text.contains("project =") {
            true => text.to_owned(),
            false => format!("{usual}{text}"),
        };
        let layout: Layout = toml::from_str(&text).unwrap();
        let (key, error) = match layout.check_keys() {
            Ok(()) => return String::new(),
            Err(wrong) => wrong,
        };
        assert_eq!(error.kind(), store::ErrorKind::InvalidInput);
        format!("{key}: {error}")
    }

    #[test]
    fn a_layout_that_leaves_its_base_or_names_nothing_is_refused() {
        for (text, told) in [
            (
                "project = \"../up\"",
                "project: expected a path below the base, found \"../up\"",
            ),
            (
                "project = \"\"",
                "project: is missing or empty, expected a path below the base",
            ),
            (
                "project = \"p\"\nteam = \"~/t\"",
                "team: expected a path below the base, found \"~/t\"",
            ),
            (
                "env.X = \"{home}\"",
                "env.X: expected {base}, {project}, {team} or {job}, found {home}",
            ),
            ("env.X = \"{base\"", "env.X: expected } behind {"),
            (
                "base = \"~/caches\"",
                "base: expected an absolute path, found \"~/caches\"",
            ),
            ("exclude = [\"*.lock\", \"a[\"]", "exclude: glob \"a[\""),
        ] {
            assert_eq!(wrong(text), told);
        }
    }

    #[test]
    fn a_place_is_the_same_from_wherever_the_command_runs() {
        let expected = "expected an absolute path, or one that begins with {base}/, {project}/ or {team}/, found";
        for place in ["~/n", "rel", "../x", "", "{job}/n", "{base}n", " /n"] {
            let dir = format!("compile.neff.dir = \"{place}\"");
            let told = format!("compile.neff.dir: {expected} {place:?}");
            assert_eq!(wrong(&dir), told);
            let link = format!("links.l = \"{place}\"");
            assert_eq!(wrong(&link), format!("links.l: {expected} {place:?}"));
        }
        for place in ["/n", "{base}", "{project}/n", "{team}/n/{job}"] {
            assert_eq!(wrong(&format!("compile.neff.dir = \"{place}\"")), "");
            assert_eq!(wrong(&format!("links.l = \"{place}\"")), "");
        }
    }

    #[test]
    fn the_caches_of_a_project_and_a_team_and_the_links_are_beside_each_other() {
        for (project, team) in [("same", "same"), ("a/b", "a"), ("a", "a/b"), ("a/", "a")] {
            let told = wrong(&format!("project = \"{project}\"\nteam = \"{team}\""));
            let expected =
                format!("team: expected a path beside the project's cache ({project}), found");
            assert!(told.starts_with(&expected), "{told}");
        }
        assert_eq!(wrong("project = \"a/b\"\nteam = \"a/bc\""), "");
        for (link, whose) in [("a", "project"), ("a/b", "project"), ("t", "team")] {
            let told = wrong(&format!(
                "project = \"a/b\"\nteam = \"t\"\nlinks.\"{link}\" = \"/x\""
            ));
            let expected = "expected a path of its own, found where the";
            assert_eq!(told, format!("links.{link}: {expected} {whose}'s cache is"));
        }
        assert_eq!(wrong("links.\"p/hub\" = \"/x\""), "");
    }
}
