//! Modules that stand side by side import each other in no circle.
//!
//! A module stands for all that is below it. A name that a parent imports or re-exports counts as a use of the module
//! that it comes from. What is for tests alone does not count. Neither do comments, nor what stands in the parent's own
//! file.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, files, report};

/// Circles that stay, each by the file of the parent, with its modules and why it reads best as it is. At most three.
const CIRCLES: [(&str, &[&str], &str); 1] = [(
    "store/src/log.rs",
    &["again", "checkpoint"],
    "a damaged checkpoint is rebuilt from an older one, which is read in the same way and may be damaged, too",
)];

#[test]
fn modules_side_by_side_form_no_circle() {
    let mut found = BTreeMap::new();
    for src in ["store/src/", "gc/src/", "cli/src/"] {
        found.extend(Package::of(src, files(&[".rs"])).circles());
    }
    let mut offences = Vec::new();
    for (parent, modules, _) in CIRCLES {
        if found.remove(&circle(parent, modules)).is_none() {
            offences.push(format!("{parent}: {modules:?} need no exception any more"));
        }
    }
    for ((parent, modules), steps) in found {
        let modules: Vec<_> = modules.into_iter().collect();
        offences.push(format!("{parent}: {}{steps}", modules.join(", ")));
    }
    report("modules side by side form no circle", &offences);
}

/// The file of the parent, and the modules that all lead to each other.
type Circle = (String, BTreeSet<String>);

/// The names from the root of the package to a module, or what a file says of that.
type Path = Vec<String>;

/// For each module, those that it uses, and where it does so first.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// All modules that a package is built of.
#[derive(Default)]
struct Package {
    modules: BTreeMap<Path, Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    tokens: Vec<Token>,
    /// What `use` brings in: a name, and the path that is written there.
    names: BTreeMap<String, Path>,
    /// Modules of which `use` brings in everything.
    globs: Vec<Path>,
    /// What the file itself defines.
    items: BTreeSet<String>,
}

struct Token {
    line: usize,
    text: String,
}

fn circle(parent: &str, modules: &[&str]) -> Circle {
    let modules = modules.iter().map(ToString::to_string);
    (parent.to_owned(), modules.collect())
}

impl Package {
    fn of(src: &str, sources: Vec<Source>) -> Self {
        let sources = sources.into_iter();
        let sources = sources.map(|source| (source.path.clone(), source));
        let mut package = Self::default();
        package.enter(
            &sources.collect(),
            Path::new(),
            &format!("{src}lib.rs"),
            src,
        );
        package
    }

    /// Reads a module and those that it declares; their files are in `dir`.
    fn enter(&mut self, sources: &BTreeMap<String, Source>, at: Path, file: &str, dir: &str) {
        let tokens = without_tests(tokens(&sources.get(file).unwrap().code()));
        for [keyword, name, end] in triples(&tokens) {
            if keyword == "mod" && end == ";" {
                let below = format!("{dir}{name}/");
                let usual = [format!("{dir}{name}.rs"), format!("{below}mod.rs")];
                let file = usual.iter().find(|file| sources.contains_key(*file));
                self.enter(sources, joined(&at, &[name]), file.unwrap(), &below);
            }
        }
        self.modules.insert(at, Module::of(file, tokens));
    }

    /// Each circle, and the uses that close it.
    fn circles(&self) -> BTreeMap<Circle, String> {
        let mut found = BTreeMap::new();
        for (parent, uses) in self.uses() {
            let parent = &self.modules.get(&parent).unwrap().file;
            for modules in knots(&uses) {
                let mut steps = String::new();
                for (user, used) in &uses {
                    for (used, place) in used {
                        if modules.contains(user) && modules.contains(used) {
                            steps += &format!("\n    {place}: {user} uses {used}");
                        }
                    }
                }
                found.insert((parent.clone(), modules), steps);
            }
        }
        found
    }

    /// What the children of each module use of each other.
    fn uses(&self) -> BTreeMap<Path, Uses> {
        let mut uses: BTreeMap<Path, Uses> = BTreeMap::new();
        for (from, module) in &self.modules {
            for (line, path) in module.mentions() {
                let Some(to) = self.resolve(from, &path, 0) else {
                    continue;
                };
                let both = from.iter().zip(&to).take_while(|(one, other)| one == other);
                let both = both.count();
                if let (Some(user), Some(used)) = (from.get(both), to.get(both)) {
                    let parent = from.iter().take(both).cloned().collect();
                    let users = uses.entry(parent).or_default();
                    let place = || format!("{}:{line}", module.file);
                    let used = users.entry(user.clone()).or_default().entry(used.clone());
                    used.or_insert_with(place);
                }
            }
        }
        uses
    }

    /// The module that has what the module `at` calls `path`; none, if it is not in this package.
    fn resolve(&self, at: &[String], path: &[String], depth: usize) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => &[],
            "self" => at,
            "super" => at.split_last()?.1,
            _ => return self.find(at, path, depth),
        };
        match rest.first() {
            Some(next) if next == "super" => self.resolve(start, rest, depth),
            _ => self
                .find(start, rest, depth)
                .or_else(|| Some(start.to_vec())),
        }
    }

    /// Like [`Self::resolve`] for a path that begins with a name in the module `at`.
    fn find(&self, at: &[String], path: &[String], depth: usize) -> Option<Path> {
        const DEPTH_MAX: usize = 8;
        let (first, rest) = path.split_first()?;
        let module = self.modules.get(at)?;
        let child = joined(at, &[first]);
        if self.modules.contains_key(&child) {
            return self.find(&child, rest, depth).or(Some(child));
        }
        if module.items.contains(first) {
            return Some(at.to_vec());
        }
        if depth > DEPTH_MAX {
            return None;
        }
        if let Some(origin) = module.names.get(first) {
            return self.resolve(at, &[origin, rest].concat(), depth + 1);
        }
        module.globs.iter().find_map(|glob| {
            let origin = self.resolve(at, glob, depth + 1)?;
            self.find(&origin, path, depth + 1)
        })
    }
}

impl Module {
    fn of(file: &str, tokens: Vec<Token>) -> Self {
        const KEYWORDS: [&str; 9] = [
            "const",
            "enum",
            "fn",
            "macro_rules",
            "static",
            "struct",
            "trait",
            "type",
            "union",
        ];
        let mut module = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        for (at, token) in tokens.iter().enumerate() {
            if token.text == "use" {
                for (path, name) in tree(&tokens, at + 1) {
                    match name.as_str() {
                        "*" => module.globs.push(path),
                        _ => drop(module.names.insert(name, path)),
                    }
                }
            }
        }
        for [keyword, name, after] in triples(&tokens) {
            if KEYWORDS.contains(&keyword) {
                let name = if keyword == "macro_rules" {
                    after
                } else {
                    name
                };
                module.items.insert(name.to_owned());
            }
        }
        module.tokens = tokens;
        module
    }

    /// The line of every path of two names or more, and the path; those of imports one by one.
    fn mentions(&self) -> Vec<(usize, Path)> {
        let mut found = Vec::new();
        let mut before = "";
        for (at, Token { line, text }) in self.tokens.iter().enumerate() {
            let is_path = text_at(&self.tokens, at + 1) == "::";
            if is_name(text) && is_path && before != "::" {
                let paths = tree(&self.tokens, at).into_iter();
                found.extend(paths.map(|(path, _)| (*line, path)));
            }
            before = text;
        }
        found
    }
}

/// The paths of `a::{b, c::d as e, f::*}` from a token on, and the name that each brings in: `b`, `e` and `*`.
fn tree(tokens: &[Token], start: usize) -> Vec<(Path, String)> {
    let mut found = Vec::new();
    branch(tokens, start, &[], &mut found);
    found
}

/// Reads one branch of such a tree, which is below `above`. Returns the position behind it.
fn branch(
    tokens: &[Token],
    start: usize,
    above: &[String],
    found: &mut Vec<(Path, String)>,
) -> usize {
    let text = |at: usize| text_at(tokens, at);
    let (mut path, mut at) = (above.to_vec(), start);
    loop {
        match text(at) {
            "{" if !path.is_empty() => {
                at += 1;
                while !["}", ""].contains(&text(at)) {
                    at = branch(tokens, at, &path, found);
                    at += usize::from(text(at) == ",");
                }
                return at + 1;
            }
            "*" => {
                found.push((path, "*".to_owned()));
                return at + 1;
            }
            "self" if !path.is_empty() => {}
            name if is_name(name) => path.push(name.to_owned()),
            // The arguments of a type: `a::<T>`.
            _ => break,
        }
        at += 1;
        if text(at) != "::" {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if text(at) == "as" {
        name = text(at + 1).to_owned();
        at += 2;
    }
    found.push((path, name));
    at.max(start + 1)
}

/// Names, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let len = match end.unwrap_or(rest.len()) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                len => len,
            };
            let (text, behind) = rest.split_at(len);
            tokens.push(Token {
                line: line + 1,
                text: text.to_owned(),
            });
            rest = behind.trim_start();
        }
    }
    tokens
}

/// Leaves out the items that are for tests alone.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept: Vec<Token> = Vec::new();
    let mut rest = tokens.into_iter();
    while let Some(token) = rest.next() {
        kept.push(token);
        let before = kept.len().saturating_sub(MARK.len());
        if !kept.iter().skip(before).map(|token| &*token.text).eq(MARK) {
            continue;
        }
        kept.truncate(before);
        let mut depth = 0;
        for Token { text, .. } in rest.by_ref() {
            depth += i32::from(text == "{") - i32::from(text == "}");
            if depth == 0 && [";", "}"].contains(&&*text) {
                break;
            }
        }
    }
    kept
}

fn triples(tokens: &[Token]) -> impl Iterator<Item = [&str; 3]> {
    let windows = tokens.array_windows();
    windows.map(|three: &[Token; 3]| three.each_ref().map(|token| &*token.text))
}

fn text_at(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn joined(path: &[String], names: &[&str]) -> Path {
    let names = names.iter().map(ToString::to_string);
    path.iter().cloned().chain(names).collect()
}

/// The sets of modules that all lead to each other.
fn knots(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = uses
        .keys()
        .map(|user| (user, reached(uses, user)))
        .collect();
    let leads = |from: &String, to: &String| reached.get(from).unwrap().contains(to);
    let knot = |user: &String| -> BTreeSet<String> {
        let others = uses.keys();
        let others = others.filter(|other| leads(user, other) && leads(other, user));
        others.cloned().collect()
    };
    let mut knots: BTreeSet<_> = uses.keys().map(knot).collect();
    knots.remove(&BTreeSet::new());
    knots
}

/// All that a module leads to; itself only in a circle.
fn reached<'u>(uses: &'u Uses, from: &'u String) -> BTreeSet<&'u String> {
    let mut reached = BTreeSet::new();
    let mut queue = vec![from];
    while let Some(next) = queue.pop() {
        let used = uses.get(next).into_iter().flat_map(BTreeMap::keys);
        queue.extend(used.filter(|used| reached.insert(*used)));
    }
    reached
}

/// The circles of a package with these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<Circle> {
    let sources = files.iter().map(|(path, text)| Source {
        path: format!("src/{path}"),
        text: text.to_string(),
    });
    let package = Package::of("src/", sources.collect());
    package.circles().into_keys().collect()
}

#[test]
fn a_circle_is_seen_however_it_is_spelled() {
    let found = circles_of(&[
        (
            "lib.rs",
            "mod a;\nmod b;\nmod c;\nmod d;\npub use b::*;\nuse c::C;",
        ),
        ("a.rs", "use crate::B;"),
        ("b.rs", "mod below;\npub struct B;"),
        ("b/below.rs", "fn f() { super::super::C::new::<u8>() }"),
        (
            "c.rs",
            "use super::{self as top, d::{self, D}};\nstruct C;\nfn f() { d::f(top::a::A) }",
        ),
        ("d.rs", "use crate::b::B;\npub struct D;"),
    ]);
    assert_eq!(found, [circle("src/lib.rs", &["a", "b", "c", "d"])]);
}

#[test]
fn a_circle_below_is_of_the_parent_below() {
    let found = circles_of(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b;\nmod c;"),
        ("a/b.rs", "use crate::a::c::C;"),
        ("a/c.rs", "use super::b;"),
    ]);
    assert_eq!(found, [circle("src/a/mod.rs", &["b", "c"])]);
}

#[test]
fn tests_comments_and_parents_close_no_circle() {
    let found = circles_of(&[
        (
            "lib.rs",
            "mod a;\nmod b;\n#[cfg(test)]\nmod tests;\nfn f() { a::f() }",
        ),
        (
            "a.rs",
            "//! See [`super::b`].\nuse super::f;\n#[cfg(test)]\nuse super::b::{B, C};",
        ),
        (
            "b.rs",
            "use super::a;\n#[cfg(test)]\nmod tests {\n    use super::super::a::A;\n}",
        ),
    ]);
    assert_eq!(found, []);
}
