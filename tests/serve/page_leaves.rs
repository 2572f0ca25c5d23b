//! Lists that are longer than a page: all pages together show each line once.

use std::sync::Arc;

use store::format::{Change, Extra, Who};
use store::remote::{Objects, Write};
use store::{Host, Store, log};
use support::{TestEnvironment, environment};

use crate::page::{page, text, values};
use crate::server::Server;

#[test]
fn many_refs_versions_and_entries_are_leafed_through() {
    let env = environment!();
    for n in 0..620 {
        env.write(format!("wide/{n:04}"), n.to_string());
    }
    env.ok(["put", "wide", "project/demo/wide"]);
    set_many(&env, 103);
    env.ok(["rm", "project/demo/versions@50"]);
    let server = Server::start(&env, &[]);
    let leafed = |first: &str, rows: &str| {
        let (mut path, mut found) = (first.to_owned(), Vec::new());
        loop {
            let html = text(&page(&server, &path, ""));
            let hrefs = values(
                html.split("<tbody>")
                    .nth(1)
                    .unwrap()
                    .split("</tbody>")
                    .next()
                    .unwrap(),
                "href",
            );
            found.extend(hrefs.into_iter().filter(|href| href.contains(rows)));
            let next = html
                .split("<nav class=\"leaf\"")
                .nth(1)
                .map(|nav| nav.split("</nav>").next().unwrap());
            let next = next.and_then(|nav| {
                values(nav, "href")
                    .into_iter()
                    .zip(nav.split("<a ").skip(1))
                    .find(|(_, link)| link.contains("Next") || link.contains("Older"))
            });
            match next {
                Some((href, _)) => path = href,
                None => return found,
            }
        }
    };
    let entries = leafed("/-/project/demo/wide@1", "@1/");
    assert_eq!(
        (
            entries.len(),
            entries.first().unwrap().as_str(),
            entries.last().unwrap().as_str()
        ),
        (
            620,
            "/-/project/demo/wide@1/0000",
            "/-/project/demo/wide@1/0619"
        )
    );
    let versions = leafed("/-/project/demo/versions", "@");
    assert_eq!(
        (versions.len(), versions.first().unwrap().as_str()),
        (102, "/-/project/demo/versions@103")
    );
    assert!(!versions.contains(&"/-/project/demo/versions@50".to_owned()));
    let refs = leafed("/-/project/demo", "@");
    assert_eq!(refs.len(), 105);
    let begun = leafed("/-/project/demo?begin=refs%2F09", "@");
    assert_eq!(begun.len(), 10, "{begun:?}");
}

/// Adds this many versions of one ref, and as many refs, in one log entry.
fn set_many(env: &TestEnvironment, count: u64) {
    let dir = env.path("home/.local/share/store");
    let remote: Arc<dyn Write> = Arc::new(Objects::directory(&dir).unwrap());
    let store = Store::open(Arc::clone(&remote), Host::default()).unwrap();
    let mut state = store.state().unwrap();
    let (_, model) = state
        .version(&"project/demo/wide".parse().unwrap(), None)
        .unwrap();
    let set = |name: String, version: u64| Change::SetRef {
        name: name.parse().unwrap(),
        version,
        root: model.root,
        sides: model.sides.clone(),
        message: String::new(),
        expires: None,
        origin: None,
        ends: Vec::new(),
        private: false,
        extra: Extra::new(),
    };
    let versions = (1..=count).map(|number| set("project/demo/versions".to_owned(), number));
    let refs = (0..count).map(|number| set(format!("project/demo/refs/{number:03}"), 1));
    let changes: Vec<Change> = versions.chain(refs).collect();
    log::commit(remote.as_ref(), &mut state, &Who::default(), &mut |_, _| {
        Ok(changes.clone())
    })
    .unwrap();
}
