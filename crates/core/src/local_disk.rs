//! Recognises network file systems. The embedded stores refuse them: another
//! machine sees neither their locks nor their shared memory, and two machines
//! that write at once destroy the data.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What `statfs` reports for every FUSE file system.
const FUSE: u32 = 0x6573_5546;

/// Checks that the file or directory, which need not exist yet, is on a disk of
/// this machine.
///
/// # Errors
/// `Unsupported` with a sentence that names the file system; the operating
/// system's error when it does not tell.
pub fn check(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    for folder in path.ancestors() {
        match rustix::fs::statfs(folder) {
            // It lies where its nearest existing directory is.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
            Ok(found) => {
                // Some systems extend the sign of this 32-bit number.
                let Some(name) = network_file_system(found.f_type as u32, || mounted(folder))
                else {
                    return Ok(());
                };
                let message = format!(
                    "it is on {name}, where locks do not hold between machines and data would be \
                     destroyed; choose a path on a local disk or volume, or use a server \
                     (redis://, kafka://)"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
        }
    }
    Ok(())
}

/// FUSE file systems that are on a network, as mounts name them. Others, such as virtiofs and
/// fuse-overlayfs, belong to this machine.
const NETWORK_FUSE: &[&str] = &[
    "sshfs",
    "s3fs",
    "mount-s3",
    "goofys",
    "gcsfuse",
    "blobfuse",
    "blobfuse2",
    "rclone",
    "davfs",
    "glusterfs",
    "ceph",
    "ceph-fuse",
    "juicefs",
    "seaweedfs",
    "smbnetfs",
    "curlftpfs",
];

/// The name of a network file system, by the type that `statfs` reports
/// (`linux/magic.h`, statfs(2)), and for FUSE by the name of the mount; `None` for the others.
fn network_file_system(kind: u32, mounted: impl FnOnce() -> Option<String>) -> Option<String> {
    let name = match kind {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB/CIFS",
        0x00c3_6400 => "Ceph",
        0x0102_1997 => "9p (a directory shared by the host of a virtual machine)",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x0bd0_0bd0 => "Lustre",
        FUSE => {
            let name = mounted()?;
            let program = name.strip_prefix("fuse.")?;
            return NETWORK_FUSE.contains(&program).then(|| program.to_owned());
        }
        _ => return None,
    };
    Some(name.to_owned())
}

/// The type of the file system that this folder is on, as mounts name it.
fn mounted(folder: &Path) -> Option<String> {
    let device = std::fs::metadata(folder).ok()?.dev();
    mounted_type(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, device)
}

/// The type of the file system of a device (proc_pid_mountinfo(5)).
fn mounted_type(mounts: &str, device: u64) -> Option<String> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let of_device = |line: &&str| line.split(' ').nth(2) == Some(&device);
    let (_, file_system) = mounts.lines().find(of_device)?.split_once(" - ")?;
    file_system.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_named_and_others_are_not() {
        for (kind, name) in [
            (0x6969, Some("NFS")),
            (0x517b, Some("SMB/CIFS")),
            (0xff53_4d42, Some("SMB/CIFS")),
            (0xfe53_4d42, Some("SMB/CIFS")),
            (0x00c3_6400, Some("Ceph")),
            (0x0102_1997, Some("9p")),
            (0x5346_414f, Some("AFS")),
            (0x6b41_4653, Some("AFS")),
            (0x0bd0_0bd0, Some("Lustre")),
            (0xef53, None),      // ext4
            (0x5846_5342, None), // XFS
            (0x9123_683e, None), // Btrfs
            (0x2fc1_2fc1, None), // ZFS
            (0x0102_1994, None), // tmpfs
            (0x794c_7630, None), // overlayfs
            (0xf2f5_2010, None), // F2FS
        ] {
            let found = network_file_system(kind, || unreachable!());
            let word = found.as_deref().map(|found| found.split(' ').next().unwrap_or_default());
            assert_eq!(word, name, "{kind:#x}");
        }
    }

    #[test]
    fn a_fuse_file_system_is_judged_by_the_name_of_its_mount() {
        for (mounted, name) in [
            (Some("fuse.sshfs"), Some("sshfs")),
            (Some("fuse.glusterfs"), Some("glusterfs")),
            (Some("fuse.fuse-overlayfs"), None),
            (Some("virtiofs"), None),
            (Some("fuseblk"), None),
            (None, None),
        ] {
            let found = network_file_system(FUSE, || mounted.map(str::to_owned));
            assert_eq!(found.as_deref(), name, "{mounted:?}");
        }
        let mounts = "36 35 98:0 / /a rw master:1 - ext4 /dev/root rw\n\
                      40 36 0:52 / /b rw shared:2 - fuse.sshfs me@host:/ rw\n";
        let device = rustix::fs::makedev(0, 52);
        assert_eq!(mounted_type(mounts, device).as_deref(), Some("fuse.sshfs"));
        assert_eq!(mounted_type(mounts, rustix::fs::makedev(0, 53)), None);
        assert!(mounted(Path::new("/proc")).is_some_and(|found| found == "proc"));
    }

    #[test]
    fn a_path_that_does_not_exist_lies_on_the_disk_of_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("a/b/c.db")).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(check(&file.path().join("a")).is_err(), "a file has no directories");
    }
}
