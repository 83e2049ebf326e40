# scripts/dist fills in VERSION, ADDRESS and the archives that it packed.
class Maru < Formula
  desc "Hub for the Model Context Protocol: servers, databases and language models"
  homepage "ADDRESS"
  version "VERSION"
  license "Apache-2.0"

  # ARCHIVES
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
