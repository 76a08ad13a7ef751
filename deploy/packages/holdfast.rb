# The formula for Homebrew. scripts/dist.sh puts in the version and the checksums.
class Holdfast < Formula
  desc "Run a program under a distributed lock"
  homepage "https://github.com/holdfast-go/holdfast"
  version "@version@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/holdfast-go/holdfast/releases/download/v@version@/holdfast_@version@_darwin_arm64.tar.gz"
      sha256 "@darwin_arm64@"
    end
    on_intel do
      url "https://github.com/holdfast-go/holdfast/releases/download/v@version@/holdfast_@version@_darwin_amd64.tar.gz"
      sha256 "@darwin_amd64@"
    end
  end
  on_linux do
    on_arm do
      url "https://github.com/holdfast-go/holdfast/releases/download/v@version@/holdfast_@version@_linux_arm64.tar.gz"
      sha256 "@linux_arm64@"
    end
    on_intel do
      url "https://github.com/holdfast-go/holdfast/releases/download/v@version@/holdfast_@version@_linux_amd64.tar.gz"
      sha256 "@linux_amd64@"
    end
  end

  def install
    bin.install Dir["bin/*"]
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/completions/holdfast.bash" => "holdfast"
    fish_completion.install "share/completions/holdfast.fish"
    zsh_completion.install "share/completions/_holdfast"
  end

  test do
    assert_match "v#{version}", shell_output("#{bin}/holdfast version")
  end
end
