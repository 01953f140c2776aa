//! Pixels of the page's large pictures, whoever drew them.

use anyhow::Result;
use serde_json::Value;

use crate::browser::Browser;

/// Gives each frame that the GPU draws a texture of ours: a headless browser shows none, so it can't be looked at.
pub const KEEP_FRAMES: &str = "
    if (!window.GPUCanvasContext) return;
    const context = GPUCanvasContext.prototype, configure = context.configure;
    context.configure = function (settings) { this.settings = settings; return configure.call(this, settings); };
    context.getCurrentTexture = function () {
        const { device, format } = this.settings;
        const size = [this.canvas.width, this.canvas.height];
        window.lastFrame = { device, format, texture: device.createTexture({ size, format, usage: 17 }) };
        return window.lastFrame.texture;
    };";

/// What `pixels` runs; HOOK stands for the picture's.
const PIXELS: &str = "
    const map = document.querySelector('[data-testid=HOOK]'), canvas = map.querySelector('canvas');
    const { width, height } = canvas;
    return (async () => {
        let bytes;
        if (map.dataset.renderer === 'webgpu') {
            const { device, format, texture } = window.lastFrame, row = Math.ceil(width * 4 / 256) * 256;
            const buffer = device.createBuffer({ size: row * height, usage: 9 });
            const encoder = device.createCommandEncoder();
            encoder.copyTextureToBuffer({ texture }, { buffer, bytesPerRow: row }, [width, height]);
            device.queue.submit([encoder.finish()]);
            await buffer.mapAsync(1);
            const rows = new Uint8Array(buffer.getMappedRange()), blue = format.startsWith('bgra');
            bytes = new Uint8Array(width * height * 4);
            for (let y = 0; y < height; y++) bytes.set(rows.subarray(y * row, y * row + width * 4), y * width * 4);
            if (blue) for (let i = 0; i < bytes.length; i += 4) [bytes[i], bytes[i + 2]] = [bytes[i + 2], bytes[i]];
        } else bytes = canvas.getContext('2d').getImageData(0, 0, width, height).data;
        let sum = 0;
        const colours = new Set();
        for (let i = 0; i < bytes.length; i += 4) {
            const colour = bytes[i] << 16 | bytes[i + 1] << 8 | bytes[i + 2];
            sum = (Math.imul(sum, 31) + colour) | 0;
            colours.add(colour);
        }
        return { width, height, sum, colours: colours.size };
    })();";

/// A number that stands for all pixels of a picture's rectangles, and how many colours they have.
///
/// # Errors
/// When the browser does not answer.
pub async fn pixels(browser: &Browser, hook: &str) -> Result<Value> {
    browser.script(&PIXELS.replace("HOOK", hook)).await
}
