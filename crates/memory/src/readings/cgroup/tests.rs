use super::*;

const V1_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

/// A machine of 8 GB whose groups are files of the test.
struct FakeCgroupFs(tempfile::TempDir);

impl FakeCgroupFs {
    fn new(membership: &str, mounts: &str) -> Self {
        let machine = Self(tempfile::tempdir().expect("a directory"));
        machine.write("proc/meminfo", "MemTotal:  8388608 kB\n");
        machine.write("proc/self/cgroup", membership);
        machine.write("proc/self/mountinfo", mounts);
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.0.path().join(path);
        fs::create_dir_all(file.parent().expect("a folder")).expect("its folder");
        fs::write(file, text).expect("a file");
    }

    fn v2(&self, group: &str, max: &str, current: u64) {
        self.write(&format!("sys/fs/cgroup{group}/memory.max"), &format!("{max}\n"));
        self.write(&format!("sys/fs/cgroup{group}/memory.current"), &format!("{current}\n"));
    }

    fn v1(&self, group: &str, limit: u64, current: u64) {
        let home = format!("sys/fs/cgroup/memory{group}");
        self.write(&format!("{home}/memory.limit_in_bytes"), &format!("{limit}\n"));
        self.write(&format!("{home}/memory.usage_in_bytes"), &format!("{current}\n"));
    }

    fn read(&self) -> Option<Cgroup> {
        Cgroup::read(self.0.path())
    }

    fn limit_at(&self) -> (Option<u64>, u64, String) {
        let group = self.read().expect("a group");
        let path = group.path.strip_prefix(self.0.path()).expect("inside").to_owned();
        (group.limit, group.current, path.display().to_string())
    }
}

#[test]
fn the_smallest_limit_of_all_ancestors_applies() {
    let machine = FakeCgroupFs::new("0::/app.slice/web.service\n", V2_MOUNT);
    machine.v2("/app.slice/web.service", "4000000", 1_000);
    machine.v2("/app.slice", "3000000", 2_000);
    assert_eq!(machine.limit_at(), (Some(3_000_000), 2_000, "sys/fs/cgroup/app.slice".into()));
    machine.v2("/app.slice", "max", 2_000);
    let own = "sys/fs/cgroup/app.slice/web.service";
    assert_eq!(machine.limit_at(), (Some(4_000_000), 1_000, own.into()));
}

#[test]
fn without_a_limit_the_usage_of_the_own_group_is_read() {
    let machine = FakeCgroupFs::new("0::/app\n", V2_MOUNT);
    machine.v2("/app", "max", 700);
    assert_eq!(machine.limit_at(), (None, 700, "sys/fs/cgroup/app".into()));
}

#[test]
fn a_limit_above_the_machines_memory_is_ignored() {
    let machine = FakeCgroupFs::new("4:memory:/app\n", V1_MOUNT);
    machine.v1("/app", 9_223_372_036_854_771_712, 700);
    assert_eq!(machine.limit_at().0, None);
    machine.v1("/app", 8 << 30, 700);
    assert_eq!(machine.limit_at().0, None);
    machine.v1("/app", (8 << 30) - 1, 700);
    assert_eq!(machine.limit_at().0, Some((8 << 30) - 1));
}

#[test]
fn version_one_is_read_when_both_are_mounted() {
    let mounts = format!("{V2_MOUNT}{V1_MOUNT}");
    let machine = FakeCgroupFs::new("9:name=systemd:/\n4:cpu,memory:/app\n0::/\n", &mounts);
    machine.v1("/app", 5_000, 300);
    let group = machine.read().expect("a group");
    assert_eq!((group.version, group.limit, group.current), (CgroupVersion::V1, Some(5_000), 300));
    assert_eq!(group.version.number(), 1);
}

#[test]
fn reclaimable_file_cache_does_not_count() {
    let machine = FakeCgroupFs::new("0::/app\n", V2_MOUNT);
    machine.v2("/app", "10000", 9_000);
    machine
        .write("sys/fs/cgroup/app/memory.stat", "anon 1\ninactive_file_x 5\ninactive_file 8000\n");
    assert_eq!(machine.limit_at().1, 1_000);
    let machine = FakeCgroupFs::new("4:memory:/app\n", V1_MOUNT);
    machine.v1("/app", 10_000, 9_000);
    machine.write(
        "sys/fs/cgroup/memory/app/memory.stat",
        "inactive_file 1\ntotal_inactive_file 9500\n",
    );
    assert_eq!(machine.limit_at().1, 0);
}

#[test]
fn the_group_of_a_container_is_mounted_as_the_root() {
    // With a namespace of its own: `/` and mounted as `/`.
    let machine = FakeCgroupFs::new("0::/\n", V2_MOUNT);
    machine.v2("", "5000", 300);
    assert_eq!(machine.limit_at().0, Some(5_000));
    // With the host's view: the same long name in both.
    let mounts = V1_MOUNT.replace(" / ", " /docker/abc ");
    let machine = FakeCgroupFs::new("4:memory:/docker/abc/inner\n", &mounts);
    machine.v1("", 6_000, 300);
    machine.v1("/inner", 7_000, 200);
    assert_eq!(machine.limit_at(), (Some(6_000), 300, "sys/fs/cgroup/memory".into()));
}

#[test]
fn a_group_that_is_not_mounted_falls_back_to_the_mounted_one() {
    let mounts = V1_MOUNT.replace(" / ", " /docker/abc ");
    for name in ["/elsewhere", "/docker/abc/../other", "/docker/abc/gone", "/../.."] {
        let machine = FakeCgroupFs::new(&format!("4:memory:{name}\n"), &mounts);
        machine.v1("", 6_000, 300);
        assert_eq!(machine.limit_at().0, Some(6_000), "{name}");
    }
}

#[test]
fn a_mount_point_with_a_blank_is_found() {
    let mounts = V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/c\\040group");
    let machine = FakeCgroupFs::new("0::/app\n", &mounts);
    machine.write("sys/fs/c group/app/memory.max", "5000\n");
    machine.write("sys/fs/c group/app/memory.current", "30\n");
    assert_eq!(machine.limit_at().0, Some(5_000));
    assert_eq!(unescaped("a\\9b\\"), "a\\9b\\");
}

#[test]
fn without_groups_or_their_files_there_is_no_reading() {
    assert_eq!(FakeCgroupFs::new("", V2_MOUNT).read(), None);
    assert_eq!(FakeCgroupFs::new("0::/\n", "").read(), None);
    // The root of version 2 has no figures.
    assert_eq!(FakeCgroupFs::new("0::/\n", V2_MOUNT).read(), None);
    assert_eq!(Cgroup::read(Path::new("/nowhere")), None);
}

#[test]
fn this_machine_can_be_read() {
    // The figures depend on the machine; the test checks that they are consistent.
    if let Some(group) = Cgroup::read(Path::new(crate::readings::ROOT)) {
        assert!(group.path.is_dir(), "{group:?}");
    }
}
