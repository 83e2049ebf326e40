//! The files for running several hubs (the Helm chart, the settings of the balancer) and those
//! that other programs read: workflows, forms, compose files.

use std::{fs, path::Path, process::Command};

use crate::clients::client_tools_dir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn chart_fits_the_schemas_of_kubernetes_for_several_values() {
    let root = Path::new(ROOT);
    let values = root.join("tests/helm/values");
    let values = ["defaults", "autoscaled", "closed"].map(|it| values.join(format!("{it}.yaml")));
    let python = client_tools_dir().join("kubernetes/bin/python");
    let checked = Command::new(python)
        .arg(root.join("tests/helm/check_chart.py"))
        .arg(root.join("packaging/helm/maru"))
        .args(values)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    let shown = String::from_utf8(checked.stdout).unwrap();
    for expected in [
        "defaults Deployment",
        "defaults NetworkPolicy",
        "defaults Ingress",
        "autoscaled HorizontalPodAutoscaler",
        "closed PodDisruptionBudget",
    ] {
        assert!(shown.lines().any(|it| it == expected), "{shown}");
    }
    assert!(!shown.contains("closed Ingress"), "{shown}");
}

#[test]
fn files_for_other_programs_fit_their_schemas() {
    let checker = client_tools_dir().join("schemas/bin/check-jsonschema");
    for (schema, files) in [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        (
            "custom.github-workflows-require-timeout",
            ".github/workflows/*.yml",
        ),
        (
            "vendor.github-issue-forms",
            ".github/ISSUE_TEMPLATE/[!c]*.yml",
        ),
        (
            "vendor.github-issue-config",
            ".github/ISSUE_TEMPLATE/config.yml",
        ),
        ("vendor.dependabot", ".github/dependabot.yml"),
        (
            "vendor.compose-spec",
            "packaging/*/compose.yaml examples/*/compose.yaml",
        ),
    ] {
        // The shell lists the files.
        let checked = Command::new("sh")
            .arg("-c")
            .arg(format!("exec \"$0\" --builtin-schema {schema} {files}"))
            .arg(&checker)
            .current_dir(ROOT)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{schema}: {said}");
    }
}

#[test]
fn haproxy_accepts_its_settings() {
    let settings = Path::new(ROOT).join("packaging/compose/haproxy.cfg");
    let settings = fs::read_to_string(settings).unwrap();
    // The certificate is the owner's.
    let plain = settings.replace(" ssl crt /run/secrets/balancer.pem alpn h2,http/1.1", "");
    assert_ne!(plain, settings);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("haproxy.cfg");
    fs::write(&file, plain).unwrap();
    let mut haproxy = Command::new("haproxy");
    let checked = haproxy.arg("-c").arg("-f").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}
