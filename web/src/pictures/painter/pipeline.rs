//! How rectangles become pixels on the GPU.

/// Bytes of the shader's `View`.
pub const VIEW_BYTES: u64 = 32;

/// The surface's settings. Colours of the page are to stay as they are, so no format that converts them.
pub fn configuration(
    surface: &wgpu::Surface<'static>,
    adapter: &wgpu::Adapter,
) -> Option<wgpu::SurfaceConfiguration> {
    let mut configuration = surface.get_default_config(adapter, 1, 1)?;
    configuration.format = configuration.format.remove_srgb_suffix();
    configuration.alpha_mode = wgpu::CompositeAlphaMode::Opaque;
    Some(configuration)
}

/// The pipeline: four corners for each instance.
pub fn pipeline(device: &wgpu::Device, format: wgpu::TextureFormat) -> wgpu::RenderPipeline {
    let module = device.create_shader_module(wgpu::include_wgsl!("../rectangles.wgsl"));
    let layouts = [
        instances(
            16,
            &[wgpu::VertexAttribute { format: wgpu::VertexFormat::Float32x4, offset: 0, shader_location: 0 }],
        ),
        instances(
            4,
            &[wgpu::VertexAttribute { format: wgpu::VertexFormat::Unorm8x4, offset: 0, shader_location: 1 }],
        ),
    ]
    .map(Some);
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("rectangles"),
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("corner"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            buffers: &layouts,
        },
        primitive: wgpu::PrimitiveState {
            topology: wgpu::PrimitiveTopology::TriangleStrip,
            ..Default::default()
        },
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("fill"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            targets: &[Some(format.into())],
        }),
        multiview_mask: None,
        cache: None,
    })
}

fn instances(stride: u64, attributes: &[wgpu::VertexAttribute]) -> wgpu::VertexBufferLayout<'_> {
    wgpu::VertexBufferLayout { array_stride: stride, step_mode: wgpu::VertexStepMode::Instance, attributes }
}
