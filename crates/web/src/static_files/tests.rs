use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// A root with files, a secret beside it, and links between them.
fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    for directory in ["root/a/b", "root/.git", "root/.well-known", "root/a%2fb", "beside"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for file in [
        "root/index.html",
        "root/top.txt",
        "root/a/b/deep.css",
        "root/a/index.html",
        "root/about.html",
        "root/.git/config",
        "root/.hidden",
        "root/a/.hidden",
        "root/.well-known/security.txt",
        "root/with space+plus.txt",
        "root/été.txt",
        "root/back\\slash.txt",
        "root/%2e%2e",
        "beside/secret.txt",
        "secret.txt",
    ] {
        fs::write(at(file), file).unwrap();
    }
    symlink("../secret.txt", at("root/link-out.txt")).unwrap();
    symlink(at("secret.txt"), at("root/link-absolute.txt")).unwrap();
    symlink("../beside", at("root/link-directory")).unwrap();
    symlink("/proc/self/root", at("root/link-magic")).unwrap();
    symlink("link-loop", at("root/link-loop")).unwrap();
    symlink("top.txt", at("root/link-inside.txt")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("root/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    tree
}

fn files(tree: &Path, set: impl FnOnce(&mut StaticSettings)) -> StaticFiles {
    let mut settings = StaticSettings::for_tests(tree.join("root"));
    set(&mut settings);
    StaticFiles::open(settings).unwrap()
}

/// The content of the file that a path names.
fn content(files: &StaticFiles, path: &[u8]) -> Option<String> {
    let resource = files.load(path, None, true).ok()?;
    let bytes = resource.representations[0].bytes.as_deref()?;
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

/// Paths that lead out of the root, to hidden files, or to nothing.
const REFUSED: [&str; 82] = [
    "/../secret.txt",
    "/..",
    "/../",
    "/./top.txt",
    "/.",
    "/a/../top.txt",
    "/a/b/../../../secret.txt",
    "/a/../../secret.txt",
    "/a/./b/deep.css",
    "/a/..",
    "//top.txt",
    "/a//b/deep.css",
    "/top.txt//",
    "//",
    "///etc/passwd",
    "//etc/passwd",
    "/%2e%2e/secret.txt",
    "/%2E%2E/secret.txt",
    "/%2e./secret.txt",
    "/.%2e/secret.txt",
    "/%2e/top.txt",
    "/%2e%2e%2fsecret.txt",
    "/..%2fsecret.txt",
    "/..%2Fsecret.txt",
    "/a%2fb/deep.css",
    "/a/%2e%2e/%2e%2e/secret.txt",
    "/%252e%252e/secret.txt",
    "/%252e%252e%252fsecret.txt",
    "/..%252fsecret.txt",
    "/%25%32%65%25%32%65/secret.txt",
    "/..%5csecret.txt",
    "/..\\secret.txt",
    "/..%5Csecret.txt",
    "/%5c..%5csecret.txt",
    "/a\\..\\..\\secret.txt",
    "/back\\slash.txt",
    "/back%5cslash.txt",
    "/C:\\secret.txt",
    "/c:/secret.txt",
    "/top.txt%00",
    "/top.txt%00.png",
    "/%00/top.txt",
    "/top.txt%0a",
    "/top.txt%0d%0aX:%20y",
    "/top.txt%7f",
    "/%c0%ae%c0%ae/secret.txt",
    "/%c0%afsecret.txt",
    "/%e0%80%ae%e0%80%ae/secret.txt",
    "/..%c0%afsecret.txt",
    "/%ef%bc%8e%ef%bc%8e/secret.txt",
    "/..%ef%bc%8fsecret.txt",
    "/%u002e%u002e/secret.txt",
    "/%ff%fe/top.txt",
    "/.git/config",
    "/.hidden",
    "/%2ehidden",
    "/a/.hidden",
    "/a/.well-known/security.txt",
    "/.well-known",
    "/.well-known/..",
    "/link-out.txt",
    "/link-absolute.txt",
    "/link-directory/secret.txt",
    "/link-magic/etc/passwd",
    "/link-loop",
    "/link-loop/a",
    "/pipe",
    "/a",
    "/a/",
    "/a/b",
    "/top.txt/",
    "/top.txt/x",
    "/TOP.TXT",
    "/missing",
    "/%",
    "/%2",
    "/%zz",
    "/%-1",
    "/top.txt%",
    "*",
    "",
    "top.txt",
];

fn refused_paths() -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = REFUSED.iter().map(|path| path.as_bytes().to_vec()).collect();
    paths.push(format!("/{}", "a".repeat(300)).into_bytes());
    paths.push(format!("/{}top.txt", "a/".repeat(3_000)).into_bytes());
    paths.push(format!("/{}secret.txt", "../".repeat(500)).into_bytes());
    paths.push(format!("/{}secret.txt", "%2e%2e/".repeat(500)).into_bytes());
    paths.push(b"/\xff".to_vec());
    paths.push(b"/..\0/secret.txt".to_vec());
    paths
}

#[test]
fn no_path_leads_out_of_the_root() {
    let tree = tree();
    let paths = refused_paths();
    assert!(paths.len() >= 60, "{}", paths.len());
    let by_kernel = files(tree.path(), |_| {});
    let mut by_parts = files(tree.path(), |_| {});
    by_parts.root = by_parts.root.without_openat2();
    for path in paths {
        for files in [&by_kernel, &by_parts] {
            assert_eq!(content(files, &path), None, "{}", path.escape_ascii());
        }
    }
}

#[test]
fn files_below_the_root_are_found() {
    let tree = tree();
    let by_kernel = files(tree.path(), |_| {});
    let mut by_parts = files(tree.path(), |_| {});
    by_parts.root = by_parts.root.without_openat2();
    for (path, name) in [
        ("/top.txt", "top.txt"),
        ("/a/b/deep.css", "a/b/deep.css"),
        ("/a/b/deep%2ecss", "a/b/deep.css"),
        ("/with%20space+plus.txt", "with space+plus.txt"),
        ("/%C3%A9t%c3%a9.txt", "été.txt"),
        ("/été.txt", "été.txt"),
        ("/.well-known/security.txt", ".well-known/security.txt"),
        ("/%252e%252e", "%2e%2e"),
    ] {
        for files in [&by_kernel, &by_parts] {
            assert_eq!(content(files, path.as_bytes()), Some(format!("root/{name}")), "{path}");
        }
    }
    assert_eq!(content(&by_kernel, b"/link-inside.txt"), Some("root/top.txt".to_owned()));
    assert_eq!(
        content(&by_parts, b"/link-inside.txt"),
        None,
        "without openat2 no link is followed"
    );
}

#[test]
fn an_index_stands_for_its_directory() {
    let tree = tree();
    let plain = files(tree.path(), |settings| settings.index = Some("index.html".to_owned()));
    let rails = files(tree.path(), |settings| {
        settings.index = Some("index.html".to_owned());
        settings.html = true;
    });
    for (path, in_plain, in_rails) in [
        ("/", Some("index.html"), Some("index.html")),
        ("/a/", Some("a/index.html"), Some("a/index.html")),
        ("/a", None, Some("a/index.html")),
        ("/about", None, Some("about.html")),
        ("/about/", None, Some("about.html")),
        ("/about.html", Some("about.html"), Some("about.html")),
        ("/a/b/deep", None, None),
        ("/top.txt/", None, Some("top.txt")),
    ] {
        for (files, name) in [(&plain, in_plain), (&rails, in_rails)] {
            let expected = name.map(|name| format!("root/{name}"));
            assert_eq!(content(files, path.as_bytes()), expected, "{path}");
        }
    }
}

#[test]
fn a_root_that_is_no_directory_is_an_error() {
    let tree = tree();
    let error = StaticFiles::open(StaticSettings::for_tests(tree.path().join("secret.txt")));
    assert!(error.err().unwrap().to_string().starts_with("can't serve the files in "));
}
