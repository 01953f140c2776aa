//! What the page holds of a picture: it hands in rectangles, colours and the part on screen, and asks for a drawing.

mod pipeline;

use futures::channel::mpsc;
use futures::stream::StreamExt;
use wasm_bindgen::prelude::*;
use web_sys::HtmlCanvasElement;
use web_sys::js_sys::Function;

use pipeline::{VIEW_BYTES, configuration, pipeline};

/// A picture on a canvas.
#[wasm_bindgen]
pub struct Picture {
    surface: wgpu::Surface<'static>,
    configuration: wgpu::SurfaceConfiguration,
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::RenderPipeline,
    view: wgpu::Buffer,
    binding: wgpu::BindGroup,
    rectangles: Option<wgpu::Buffer>,
    colours: Option<wgpu::Buffer>,
    count: u32,
    ground: wgpu::Color,
}

/// Makes a picture on `canvas`; none where there is no WebGPU, and then the canvas is as it was. `lost` is called when
/// the device goes away.
#[wasm_bindgen]
pub async fn start(canvas: HtmlCanvasElement, lost: Function) -> Option<Picture> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::BROWSER_WEBGPU;
    // A browser may offer WebGPU and have no adapter for it. A canvas that gave out one kind of context gives no
    // other, so the adapter comes first.
    let instance = wgpu::util::new_instance_with_webgpu_detection(descriptor).await;
    let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await.ok()?;
    let (device, queue) = adapter.request_device(&wgpu::DeviceDescriptor::default()).await.ok()?;
    let surface = instance.create_surface(wgpu::SurfaceTarget::Canvas(canvas)).ok()?;
    let configuration = configuration(&surface, &adapter)?;
    tell(&device, lost);

    let pipeline = pipeline(&device, configuration.format);
    let view = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("view"),
        size: VIEW_BYTES,
        usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let binding = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("view"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: view.as_entire_binding() }],
    });
    Some(Picture {
        surface,
        configuration,
        device,
        queue,
        pipeline,
        view,
        binding,
        rectangles: None,
        colours: None,
        count: 0,
        ground: wgpu::Color::BLACK,
    })
}

/// Calls `lost` once the device is gone. The device's own callback must be able to change threads, and a function of
/// the page is not; so the news goes through a channel.
fn tell(device: &wgpu::Device, lost: Function) {
    let (sender, mut receiver) = mpsc::unbounded::<()>();
    device.set_device_lost_callback(move |reason, _| {
        // A picture that the page gave back is no news.
        if reason != wgpu::DeviceLostReason::Destroyed {
            let _ = sender.unbounded_send(());
        }
    });
    wasm_bindgen_futures::spawn_local(async move {
        if receiver.next().await.is_some() {
            let _ = lost.call0(&JsValue::NULL);
        }
    });
}

#[wasm_bindgen]
impl Picture {
    /// Takes new rectangles: left, top, width, height of each, in units of the picture.
    pub fn set_rectangles(&mut self, rectangles: &[f32]) {
        self.count = (rectangles.len() / 4) as u32;
        let bytes: Vec<u8> = rectangles.iter().flat_map(|number| number.to_le_bytes()).collect();
        let kept = self.rectangles.take();
        self.rectangles = Some(self.filled(kept, &bytes));
    }

    /// Takes the colour of each: red in the lowest byte.
    pub fn set_colours(&mut self, colours: &[u32]) {
        let bytes: Vec<u8> = colours.iter().flat_map(|colour| colour.to_le_bytes()).collect();
        let kept = self.colours.take();
        self.colours = Some(self.filled(kept, &bytes));
    }

    /// A buffer with these bytes; the one at hand where they fit.
    fn filled(&self, kept: Option<wgpu::Buffer>, bytes: &[u8]) -> wgpu::Buffer {
        let size = bytes.len().max(16) as u64;
        let buffer = kept.filter(|buffer| buffer.size() >= size).unwrap_or_else(|| {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("instances"),
                size,
                usage: wgpu::BufferUsages::VERTEX | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        self.queue.write_buffer(&buffer, 0, bytes);
        buffer
    }

    /// Draws at a size of the canvas in pixels: a point times the scales `across` and `down` plus the offset is a
    /// pixel. `ground` is the colour behind. Says whether it drew; a surface that changed under it is drawn at the next call.
    #[expect(
        clippy::too_many_arguments,
        reason = "the page's module calls it, and numbers are what passes between them"
    )]
    pub fn draw(
        &mut self,
        width: u32,
        height: u32,
        across: f32,
        down: f32,
        left: f32,
        top: f32,
        ground: u32,
    ) -> bool {
        let most = self.device.limits().max_texture_dimension_2d;
        let (width, height) = (width.clamp(1, most), height.clamp(1, most));
        if (self.configuration.width, self.configuration.height) != (width, height) {
            (self.configuration.width, self.configuration.height) = (width, height);
            self.surface.configure(&self.device, &self.configuration);
        }
        let [red, green, blue, alpha] = ground.to_le_bytes().map(|byte| f64::from(byte) / 255.0);
        self.ground = wgpu::Color { r: red, g: green, b: blue, a: alpha };
        let numbers = [across, down, left, top, width as f32, height as f32, 0.0, 0.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.queue.write_buffer(&self.view, 0, &bytes);
        match self.surface.get_current_texture() {
            wgpu::CurrentSurfaceTexture::Success(frame) | wgpu::CurrentSurfaceTexture::Suboptimal(frame) => {
                self.encode(&frame.texture.create_view(&wgpu::TextureViewDescriptor::default()));
                self.queue.present(frame);
                true
            }
            _ => {
                self.surface.configure(&self.device, &self.configuration);
                false
            }
        }
    }

    fn encode(&self, target: &wgpu::TextureView) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
                label: Some("picture"),
                color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                    view: target,
                    depth_slice: None,
                    resolve_target: None,
                    ops: wgpu::Operations {
                        load: wgpu::LoadOp::Clear(self.ground),
                        store: wgpu::StoreOp::Store,
                    },
                })],
                ..Default::default()
            });
            if let (Some(rectangles), Some(colours)) = (&self.rectangles, &self.colours) {
                // Colours that are fewer than rectangles would be a read beyond the buffer.
                let count = self.count.min((colours.size() / 4) as u32);
                pass.set_pipeline(&self.pipeline);
                pass.set_bind_group(0, &self.binding, &[]);
                pass.set_vertex_buffer(0, rectangles.slice(..));
                pass.set_vertex_buffer(1, colours.slice(..));
                pass.draw(0..4, 0..count);
            }
        }
        self.queue.submit([encoder.finish()]);
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // The browser would keep the memory of the GPU until it collects garbage.
        self.device.destroy();
    }
}
