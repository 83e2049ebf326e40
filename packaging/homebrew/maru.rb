# scripts/dist fills in VERSION, ADDRESS and the checksums.
class Maru < Formula
  desc "Hub for the Model Context Protocol: servers, databases and language models"
  homepage "ADDRESS"
  version "VERSION"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "ADDRESS/maru-VERSION-aarch64-apple-darwin.tar.gz"
      sha256 "SHA256-aarch64-apple-darwin"
    end
    on_intel do
      url "ADDRESS/maru-VERSION-x86_64-apple-darwin.tar.gz"
      sha256 "SHA256-x86_64-apple-darwin"
    end
  end

  on_linux do
    on_arm do
      url "ADDRESS/maru-VERSION-aarch64-unknown-linux-musl.tar.gz"
      sha256 "SHA256-aarch64-unknown-linux-musl"
    end
    on_intel do
      url "ADDRESS/maru-VERSION-x86_64-unknown-linux-musl.tar.gz"
      sha256 "SHA256-x86_64-unknown-linux-musl"
    end
  end

  def install
    bin.install "maru"
  end

  service do
    run [opt_bin/"maru"]
    keep_alive true
    log_path var/"log/maru.log"
    error_log_path var/"log/maru.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/maru --version")
  end
end
